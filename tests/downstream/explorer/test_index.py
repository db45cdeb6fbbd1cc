from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bilm.embedding.embedder import Embedder
from bilm.errors import CheckpointError
from bilm.pretrained.digests import model_digest
from downstream.explorer.index import OccurrenceIndex
from downstream.explorer.index_format import RECORD_FILE, WORDS_FILE, layer_file
from tests.bilm.embedding.elmo_models import tiny
from tests.downstream.explorer.small_models import LINES, make_index

SENTENCES = [line.split() for line in dict.fromkeys(LINES) if line]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> OccurrenceIndex:
    return make_index(tmp_path_factory.mktemp("index"), tiny())


def test_contains_the_words_of_distinct_sentences(index: OccurrenceIndex) -> None:
    found = [index.occurrence(row) for row in range(len(index))]
    expected = [(tuple(words), i) for words in SENTENCES for i in range(len(words))]
    assert [(o.words, o.place) for o in found] == expected


def test_finds_a_word_in_any_case(index: OccurrenceIndex) -> None:
    words = [word for sentence in SENTENCES for word in sentence]
    expected = [i for i, word in enumerate(words) if word.lower() == "bank"]
    assert index.rows_of("BANK").tolist() == expected
    assert index.rows_of("zebra").tolist() == []


@pytest.mark.parametrize("weights", [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.2, 0.5, -0.3]])
def test_neighbours_equal_brute_force(index: OccurrenceIndex, weights: list[float]) -> None:
    arrays = Embedder(tiny(), device="cpu").embed(SENTENCES)
    mixed = np.concatenate([np.tensordot(weights, array, 1) for array in arrays])
    query = mixed[5]
    norms = np.linalg.norm(mixed, axis=1) * np.linalg.norm(query)
    cosines = mixed @ query / norms
    best = np.sort(cosines)[::-1][:12]
    found = index.nearest(query.astype(np.float32), weights, 12)
    np.testing.assert_allclose([m.cosine for m in found], best, atol=2e-3)  # float16
    np.testing.assert_allclose(cosines[[m.row for m in found]], best, atol=2e-3)
    rows = index.rows_of("bank")
    among = index.nearest(query.astype(np.float32), weights, 5, rows)
    assert {m.row for m in among} <= set(rows.tolist())
    np.testing.assert_allclose(
        [m.cosine for m in among], np.sort(cosines[rows])[::-1][:5], atol=2e-3
    )
    np.testing.assert_allclose(index.vectors(rows, weights), mixed[rows], atol=5e-3)


def test_rejects_another_model(index: OccurrenceIndex) -> None:
    other = model_digest(tiny(seed=3))
    with pytest.raises(CheckpointError, match="was made with another model"):
        OccurrenceIndex.open(index.directory, other)


def test_rejects_changed_files(tmp_path: Path) -> None:
    index = make_index(tmp_path, tiny())
    digest = index.record.model
    path = index.directory / layer_file(1)
    data = bytearray(path.read_bytes())
    data[7] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="has changed since it was written"):
        OccurrenceIndex.open(index.directory, digest)


def test_rejects_ids_outside_the_types(tmp_path: Path) -> None:
    index = make_index(tmp_path, tiny())
    words = index.directory / WORDS_FILE
    ids = np.frombuffer(words.read_bytes(), "<i4").copy()
    ids[0] = 10_000
    words.write_bytes(ids.tobytes())
    with pytest.raises(CheckpointError, match="do not agree"):
        OccurrenceIndex(index.directory, index.record)


def test_rejects_a_list_of_other_files(tmp_path: Path) -> None:
    index = make_index(tmp_path, tiny())
    path = index.directory / RECORD_FILE
    tree = json.loads(path.read_text("utf-8"))
    tree["files"]["../outside"] = "0" * 64
    path.write_text(json.dumps(tree), encoding="utf-8")
    with pytest.raises(CheckpointError, match="and nothing else"):
        OccurrenceIndex.open(index.directory, index.record.model)
