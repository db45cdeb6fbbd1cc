from __future__ import annotations

from pathlib import Path

from data_tools.building.spool import Spool, read_batches
from tests.data_tools.building.documents import DOCUMENTS, documents_of, join_documents


def test_reads_written_records(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool") as spool:
        for document in DOCUMENTS:
            spool.append(join_documents([document]))
        spool.append(join_documents([]))
    batches = list(read_batches(spool.path, 50))
    assert documents_of(batches) == DOCUMENTS
    assert all(len(batch.ids) >= 50 for batch in batches[:-1])
    assert spool.num_words == sum(len(batch.ids) for batch in batches)
    assert spool.num_sentences == sum(len(batch.lengths) for batch in batches)
    assert spool.num_lines == len(DOCUMENTS)
