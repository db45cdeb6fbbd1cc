from __future__ import annotations

import numpy as np
import pytest

from bilm.errors import ConfigError, CorpusError
from downstream.tasks.classification import class_names, label_ids
from downstream.tasks.text_task import split_validation
from downstream.texts.labelled import LabelledTexts


def test_sorts_classes_as_numbers_or_words() -> None:
    assert class_names(LabelledTexts(("a",) * 3, ("10", "9", "2"))) == ("2", "9", "10")
    assert class_names(LabelledTexts(("a",) * 3, ("b", "10", "a"))) == ("10", "a", "b")
    with pytest.raises(CorpusError, match="only one class"):
        class_names(LabelledTexts(("a", "b"), ("1", "1")))


def test_rejects_labels_outside_the_classes() -> None:
    data = LabelledTexts(("a", "b", "c"), ("x", "new", "new"), "test.csv")
    with pytest.raises(CorpusError, match=r"test.csv has labels .* 'new' \(2 times\)"):
        label_ids(data, ("x", "y"))
    assert label_ids(LabelledTexts(("a",), ("x",)), ("y", "x")).tolist() == [1]


def test_split_keeps_the_class_shares() -> None:
    labels = np.array([0] * 80 + [1] * 19 + [2])
    train, validation = split_validation(labels, 0.1, seed=3)
    assert sorted([*train, *validation]) == list(range(100))
    assert np.bincount(labels[validation]).tolist() == [8, 2]
    assert 99 in train
    again = split_validation(labels, 0.1, seed=3)[1]
    np.testing.assert_array_equal(validation, again)
    assert (split_validation(labels, 0.1, seed=4)[1] != validation).any()
    with pytest.raises(ConfigError, match="share"):
        split_validation(labels, 1.0, 0)
    with pytest.raises(CorpusError, match="every class has only one text"):
        split_validation(np.array([0, 1]), 0.5, 0)
