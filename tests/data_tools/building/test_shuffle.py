from __future__ import annotations

import itertools
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from data_tools.building import shuffle as module
from data_tools.building.merging import MergeTask, Ranges, merge_range
from data_tools.building.shuffle import (
    BucketTask,
    PartIds,
    ScatterTask,
    SplitShuffle,
    fill_bucket,
    scatter_part,
    take_lines,
)
from data_tools.building.spool import Sentences, Spool, part_directory
from data_tools.building.word_types import PLACES_FILE, write_types
from tests.data_tools.building.documents import DOCUMENTS, join_documents


def write_parts(directory: Path, parts: list[list[Sentences]]) -> list[PartIds]:
    """Write parts that all have the types 0 to 999, whose final ids are the same numbers."""
    types, counts = [b"%03d" % i for i in range(1000)], np.zeros(1000, dtype=np.int64)
    for number, batches in enumerate(parts):
        part = part_directory(directory / "parts", number)
        part.mkdir(parents=True)
        places = write_types(part, types, counts)
        (part / PLACES_FILE).write_bytes(places.tobytes())
        with Spool(part / "train") as spool:
            for batch in batches:
                spool.append(batch)
    (directory / "final").write_bytes(places.tobytes())
    merged = part_directory(directory / "ranges", 0)
    merge_range(MergeTask(directory / "parts", len(parts), (b"", None), merged))
    ranges = Ranges(directory / "ranges", 1)
    return [
        PartIds(part_directory(directory / "parts", number), ranges, directory / "final")
        for number in range(len(parts))
    ]


def shuffled(
    directory: Path, parts: list[list[Sentences]], by: str, seed: tuple[int, ...]
) -> list[list[int]]:
    """Return the sentences of `parts` in shuffled order."""
    num_words = sum(len(batch.ids) for part in parts for batch in part)
    shuffle = SplitShuffle.of("train", by, seed, num_words)
    field = "lengths" if by == "sentences" else "sentences_per_line"
    counts = [sum(len(getattr(batch, field)) for batch in part) for part in parts]
    all_ids = write_parts(directory, parts)
    for number, (ids, state) in enumerate(zip(all_ids, shuffle.states(counts), strict=True)):
        scatter_part(ScatterTask(ids, shuffle, state, part_directory(directory / "s", number)))
    found = []
    for bucket in range(shuffle.num_buckets):
        output = part_directory(directory / "b", bucket)
        fill_bucket(BucketTask(shuffle, bucket, directory / "s", len(parts), output))
        words = iter(np.fromfile(output / module.IDS_FILE, np.int32).tolist())
        lengths = np.fromfile(output / module.LENGTHS_FILE, np.int32).tolist()
        found += [list(itertools.islice(words, length)) for length in lengths]
    shutil.rmtree(directory)
    return found


@pytest.mark.parametrize("bucket_words", [1, 17, 100, 10**6])
@pytest.mark.parametrize("by", ["sentences", "documents"])
def test_keeps_the_words_of_a_line_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket_words: int, by: str
) -> None:
    monkeypatch.setattr(module, "BUCKET_WORDS", bucket_words)
    monkeypatch.setattr(module, "RUN_WORDS", 40)
    batches = [join_documents(DOCUMENTS[start : start + 20]) for start in range(0, 200, 20)]
    found = shuffled(tmp_path / "a", [batches[:4], [], batches[4:]], by, (0, 0))
    in_order = [sentence for document in DOCUMENTS for sentence in document]
    assert found != in_order
    assert Counter(map(str, found)) == Counter(map(str, in_order))
    if by == "documents":  # all sentences of a document are equal, and documents differ
        groups = [list(group) for _, group in itertools.groupby(found)]
        assert Counter(map(str, groups)) == Counter(map(str, DOCUMENTS))


def test_order_depends_on_the_seed_and_not_on_the_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUCKET_WORDS", 50)
    whole = [[join_documents(DOCUMENTS)]]
    parts = [[join_documents(DOCUMENTS[:70])], [join_documents(DOCUMENTS[70:])]]
    orders = [
        shuffled(tmp_path / "a", parts, "documents", seed)
        for parts, seed in ((whole, (1, 0)), (parts, (1, 0)), (whole, (2, 0)))
    ]
    assert orders[0] == orders[1] != orders[2]


def test_all_orders_are_equally_likely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUCKET_WORDS", 2)
    monkeypatch.setattr("os.fsync", lambda _: None)  # thousands of small files
    batch = join_documents([[[1]], [[2]], [[3]]])
    orders = Counter(
        tuple(word for [word] in shuffled(tmp_path / "a", [[batch]], "sentences", (seed,)))
        for seed in range(300)
    )
    assert len(orders) == 6
    # Expected: 50 each, with a standard deviation of 6.5.
    assert all(24 < count < 76 for count in orders.values()), orders


def test_takes_zero_lines() -> None:
    taken = take_lines(join_documents(DOCUMENTS), np.array([], np.int64))
    assert [len(array) for array in taken] == [0, 0, 0]
