from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bilm.errors import ConfigError, CorpusError
from downstream.settings.sections import DataSettings, Settings, TargetSettings
from downstream.tasks.targets import read_text_task
from downstream.tasks.text_task import split_validation
from tests.downstream.order_task import write_csv

TARGETS = {"class": "xy", "multilabel": ("x", "x|y"), "regression": ("1", "2")}


def task_of(tmp_path: Path, kind: str, **texts: list[str]) -> Any:
    """Read a task in which the target of a text is the parity of its place."""
    targets = TARGETS[kind]
    paths = {
        name: str(
            write_csv(tmp_path / f"{name}.csv", [(targets[i % 2], t) for i, t in enumerate(f)])
        )
        for name, f in texts.items()
    }
    target = TargetSettings.model_validate({"kind": kind})
    return read_text_task(
        Settings(model="m", output="o", data=DataSettings(**paths), target=target)
    )


def former_split(labels: Any, share: float, seed: int) -> Any:
    """Return the validation texts that were drawn before equal texts were kept together."""
    rng = np.random.default_rng(seed)
    chosen = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        count = min(len(members) - 1, max(1, round(share * len(members))))
        chosen.append(rng.permutation(members)[:count])
    return np.sort(np.concatenate(chosen))


def test_split_keeps_the_class_shares() -> None:
    labels = np.array([0] * 80 + [1] * 19 + [2])
    texts = list(range(100))
    train, validation = split_validation(texts, labels, 0.1, seed=3)
    assert sorted([*train, *validation]) == texts
    assert np.bincount(labels[validation]).tolist() == [8, 2]
    assert 99 in train
    again = split_validation(texts, labels, 0.1, seed=3)[1]
    np.testing.assert_array_equal(validation, again)
    assert (split_validation(texts, labels, 0.1, seed=4)[1] != validation).any()
    with pytest.raises(ConfigError, match="share"):
        split_validation(texts, labels, 1.0, 0)


@pytest.mark.parametrize("num_classes", [1, 4])
def test_split_of_distinct_texts_is_that_of_earlier_versions(num_classes: int) -> None:
    for seed in range(20):
        labels = np.random.default_rng(seed).integers(num_classes, size=57)
        for share in (0.02, 0.1, 0.5, 0.9):
            found = split_validation([f"text {i}" for i in range(57)], labels, share, seed)[1]
            np.testing.assert_array_equal(found, former_split(labels, share, seed))


def test_equal_texts_are_not_divided() -> None:
    texts = [f"text {i // 3}" for i in range(90)]  # a third of them has two labels
    labels = np.arange(90) // 20 % 2
    for seed in range(20):
        train, validation = split_validation(texts, labels, 0.2, seed)
        assert sorted([*train, *validation]) == list(range(90))
        assert not {texts[i] for i in train} & {texts[i] for i in validation}
        assert 14 <= len(validation) <= 18
        assert set(labels[train]) == set(labels[validation]) == {0, 1}


def test_every_class_keeps_a_training_text() -> None:
    texts, labels = list("aabbbc"), np.array([0, 0, 0, 1, 1, 1])
    for seed in range(20):
        train, validation = split_validation(texts, labels, 0.4, seed)
        assert set(labels[train]) == {0, 1}
        assert len(validation) > 0


def test_frequent_texts_are_used_only_if_there_is_no_rare_one() -> None:
    labels = np.zeros(8, dtype=np.int64)
    for seed in range(10):
        assert split_validation(list("aaabbbbc"), labels, 0.2, seed)[1].tolist() == [7]
        assert split_validation(list("aaabbbbb"), labels, 0.2, seed)[1].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("texts", "labels"), [("ab", [0, 1]), ("aab", [0, 0, 1]), ("aaa", [0, 0, 0]), ("aa", [0, 1])]
)
def test_rejects_texts_that_cannot_be_divided(texts: str, labels: list[int]) -> None:
    with pytest.raises(CorpusError, match="no text can be used for validation"):
        split_validation(list(texts), np.array(labels), 0.5, 0)


@pytest.mark.parametrize("kind", TARGETS)
def test_validation_texts_do_not_occur_in_training(tmp_path: Path, kind: str) -> None:
    train = [f"text {i // 4}" for i in range(80)]
    task = task_of(tmp_path, kind, train=train, test=["new", "text 0", "text 0", "text 19"])
    assert (len(task.splits["train"]), len(task.splits["validation"])) == (72, 8)
    assert not set(task.texts("train")) & set(task.texts("validation"))
    assert task.num_seen("validation") == 0
    assert task.num_seen("test") == sum(t in task.texts("train") for t in task.texts("test"))


@pytest.mark.parametrize("kind", TARGETS)
def test_counts_texts_that_occur_in_training(tmp_path: Path, kind: str) -> None:
    files = {"train": ["a", "b", "c"], "test": ["a", "a", "d"], "validation": ["d", "c"]}
    task = task_of(tmp_path, kind, **files)
    assert {name: task.num_seen(name) for name in files} == {"train": 3, "test": 2, "validation": 1}


def test_error_about_the_split_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"train\.csv: no text can be used for validation"):
        task_of(tmp_path, "regression", train=["a", "a"], test=["a"])
