from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bilm.errors import CorpusError
from downstream.settings.pairs import PairDataSettings, PairSettings
from downstream.tasks.pairs import PairTask, read_pair_task, split_pairs
from tests.downstream.pair_task import Row, pairs, write_pairs


def read(tmp_path: Path, train: list[Row], test: list[Row], **changes: Any) -> PairTask:
    data = {
        "train": str(write_pairs(tmp_path / "train.jsonl", train)),
        "test": str(write_pairs(tmp_path / "test.jsonl", test)),
        "tokenized": True,
    }
    seed = changes.pop("seed", 0)
    if "validation" in changes:
        rows = changes["validation"]
        changes["validation"] = str(write_pairs(tmp_path / "validation.jsonl", rows))
    return read_pair_task(
        PairSettings.model_validate(
            {
                "output": "o",
                "data": PairDataSettings.model_validate({**data, **changes}),
                "mix": {"kinds": ("none",)},
                "head": {"vectors": "v"},
                "train": {"seed": seed},
            }
        )
    )


def first_texts(task: PairTask, split: str) -> list[str]:
    part = task.splits[split]
    return [task.files[part.file].both(place)[0] for place in part.places]


def test_validation_pairs_do_not_share_a_first_text_with_training(tmp_path: Path) -> None:
    rows = [(f"text {i // 3}", f"other {i}", "xyz"[i % 3]) for i in range(90)]
    task = read(tmp_path, rows, rows[:3], validation_share=0.2)
    train, validation = first_texts(task, "train"), first_texts(task, "validation")
    assert (len(train), len(validation)) == (72, 18)
    assert not set(train) & set(validation)
    both = np.concatenate([task.splits[name].places for name in ("train", "validation")])
    assert sorted(both.tolist()) == list(range(90))
    again = read(tmp_path, rows, rows[:3], validation_share=0.2)
    assert first_texts(again, "validation") == validation
    other = read(tmp_path, rows, rows[:3], validation_share=0.2, seed=1)
    assert first_texts(other, "validation") != validation


def test_equal_pairs_are_not_divided() -> None:
    first = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    labels = np.array([0, 1] * 4)
    for seed in range(20):
        train, validation = split_pairs(first, labels, 0.25, seed)
        assert (len(train), len(validation)) == (6, 2)
        assert not set(first[train]) & set(first[validation])


def test_every_class_keeps_a_training_pair() -> None:
    labels = np.array([0] * 8 + [1])
    first = np.arange(9)
    for seed in range(20):
        train, validation = split_pairs(first, labels, 0.5, seed)
        assert set(labels[train]) == {0, 1}
        assert len(validation) == 4


def test_large_groups_are_used_only_if_there_is_no_small_one() -> None:
    first, labels = np.array([0, 0, 0, 0, 0, 1, 2, 2]), np.array([0, 1, 0, 1, 0, 1, 0, 1])
    assert split_pairs(first, labels, 0.2, 0)[1].tolist() in ([5], [6, 7])
    first, labels = np.array([0, 0, 0, 1, 1]), np.array([0, 1, 0, 1, 0])
    assert split_pairs(first, labels, 0.2, 0)[1].tolist() == [3, 4]


def test_rejects_pairs_that_cannot_be_split(tmp_path: Path) -> None:
    rows = [("one text", "a", "x"), ("one text", "b", "y")]
    with pytest.raises(CorpusError, match=r"train\.jsonl: no first text can be used for validat"):
        read(tmp_path, rows, rows)
    assert len(read(tmp_path, rows, rows, validation=rows).splits["train"]) == 2


def test_counts_test_pairs_that_occur_in_training(tmp_path: Path) -> None:
    train = [("a", "b", "x"), ("a", "c", "y"), ("d", "e", "x"), ("f", "g", "y")]
    test = [("a", "b", "y"), ("a", "e", "x"), ("b", "a", "x"), ("d", "e", "x"), ("d", "e", "x")]
    overlap = read(tmp_path, train, test, validation=train[:2]).overlap()
    assert (overlap.num_pairs, overlap.num_first_texts) == (3, 4)


def test_validation_pairs_do_not_count_as_training(tmp_path: Path) -> None:
    train = pairs(40, 0)
    task = read(tmp_path, train, train, validation_share=0.25)
    assert task.overlap().num_pairs == len(task.splits["train"]) == 30


def test_unknown_labels_are_rejected_or_kept(tmp_path: Path) -> None:
    train = [(f"text {i}", "b", "xy"[i % 2]) for i in range(10)]
    test = [("a", "b", "x"), ("a", "b", "-")]
    with pytest.raises(CorpusError, match=r"test\.jsonl, line 2: the label '-' does not occur in"):
        read(tmp_path, train, test)
    with pytest.raises(CorpusError, match=r"validation\.jsonl, line 1: the label 'z' does not"):
        read(tmp_path, train, train, validation=[("a", "b", "z")])
    task = read(tmp_path, train, test, unknown_labels="keep")
    assert (task.classes, task.labels) == (("x", "y"), ("x", "y", "-"))
    assert task.splits["test"].labels.tolist() == [0, 2]
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8]], dtype=np.float32)
    scores = task.score(task.splits["test"].labels, probabilities)
    assert scores.accuracy == 0.5
    assert (scores.by_class["-"].recall, scores.by_class["-"].support) == (0.0, 1)
    assert scores.by_class["y"].precision == 0.0


def test_rejects_one_class(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="has only one class"):
        read(tmp_path, [("a", "b", "x"), ("c", "d", "x")], [("a", "b", "x")])


def test_texts_of_a_file_are_distinct(tmp_path: Path) -> None:
    rows = [("a", "b", "x"), ("a", "c", "y"), ("b", "a", "x"), ("d", "d", "y")]
    task = read(tmp_path, rows, rows[:1], validation=rows)
    assert task.files["train"].pairs.texts == ("a", "b", "c", "d")
