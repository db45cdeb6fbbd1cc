from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bilm.errors import CorpusError
from downstream.settings.coreference import CorefSettings
from downstream.tasks.coreference import CorefTask, read_coref_task
from tests.downstream.coref_task import documents, write_documents


def document(name: str, **fields: Any) -> dict[str, Any]:
    return {"sentences": [[name, "x"], ["y"]], "clusters": [[[0, 0], [2, 2]]], **fields}


def read(directory: Path, rows: list[dict[str, Any]], **data: Any) -> CorefTask:
    train = write_documents(directory / "train.jsonl", rows)
    test = write_documents(directory / "test.jsonl", [document("a"), document("z")])
    files = {"train": str(train), "test": str(test)}
    tree = {"output": "out", "mix": {"kinds": ("none",)}, "data": {**files, **data}}
    return read_coref_task(CorefSettings.model_validate(tree))


def test_training_and_validation_documents_are_disjoint(tmp_path: Path) -> None:
    rows = [document(name) for name in "abacdc"]
    task = read(tmp_path, rows, validation_share=0.5)
    assert task.splits["train"].indices == (0, 1, 2)
    assert task.splits["validation"].indices == (3, 4, 5)
    assert task.num_seen("validation") == 0
    assert task.num_seen("test") == 1
    assert task.num_seen("train") == 3
    with pytest.raises(CorpusError, match="has 2 documents, which are all equal; at least two"):
        read(tmp_path, [document("a"), document("a")])


def test_features_are_those_of_the_training_documents(tmp_path: Path) -> None:
    rows = [document("a", genre="news"), document("b"), document("c", genre="fiction")]
    assert read(tmp_path, rows, validation_share=0.3).genres == ("news",)
    assert not read(tmp_path, rows).has_speakers
    rows[0]["speakers"] = [["A", "B"], ["A"]]
    assert read(tmp_path, rows).has_speakers


def test_convention_of_singletons(tmp_path: Path) -> None:
    chains = documents(4, 0, singletons=False)
    with_singletons = documents(4, 0)
    assert not read(tmp_path, chains).singletons
    task = read(tmp_path, with_singletons)
    assert task.singletons
    assert len(task.clusters("train")[0]) == 3
    task = read(tmp_path, with_singletons, singletons=False)
    assert len(task.clusters("train")[0]) == 2
    with pytest.raises(CorpusError, match="no training document has a cluster of at least one"):
        read(tmp_path, [document(name, clusters=[]) for name in "ab"], singletons=True)


def test_counts_mentions_by_length(tmp_path: Path) -> None:
    clusters = [[[0, 1], [2, 2]], [[0, 0]]]
    rows = [document(name, clusters=clusters) for name in "ab"]
    task = read(tmp_path, rows)
    assert [task.num_mentions("train", n) for n in (0, 1, 2)] == [3, 1, 0]
    assert read(tmp_path, rows, singletons=False).num_mentions("train") == 2


def test_long_training_documents_are_cut_without_overlap(tmp_path: Path) -> None:
    task = read(tmp_path, [document("a"), document("b")], max_training_words=2, window_words=3)
    tree = {"train": "a", "test": "b", "max_training_words": 2, "window_words": 3}
    data = CorefSettings.model_validate({"output": "o", "mix": {"kinds": ("none",)}, "data": tree})
    train, test = (task.targets(split, data.data).windows for split in ("train", "test"))
    assert [(w.sentences, w.words) for w in train] == [
        (range(0, 1), range(0, 2)),
        (range(1, 2), range(2, 3)),
    ]
    assert [(w.document, w.sentences) for w in test] == [(0, range(0, 2)), (1, range(2, 4))]
