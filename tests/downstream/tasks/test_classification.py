from __future__ import annotations

import pytest

from bilm.errors import CorpusError
from downstream.tasks.classification import class_names, label_ids
from downstream.texts.labelled import LabelledTexts


def test_sorts_classes_as_numbers_or_words() -> None:
    assert class_names(LabelledTexts(("a",) * 3, ("10", "9", "2"))) == ("2", "9", "10")
    assert class_names(LabelledTexts(("a",) * 3, ("b", "10", "a"))) == ("10", "a", "b")
    with pytest.raises(CorpusError, match="only one class"):
        class_names(LabelledTexts(("a", "b"), ("1", "1")))


def test_rejects_labels_outside_the_classes() -> None:
    data = LabelledTexts(("a", "b", "c"), ("x", "new", "new"), "test.csv", (2, 5, 6), "csv")
    message = (
        r"test\.csv, line 5: the label 'new' does not occur .* labels are x, y\. .* remove the"
    )
    with pytest.raises(CorpusError, match=message):
        label_ids(data, ("x", "y"))
    with pytest.raises(CorpusError, match=r"the texts, line 1: the label 'x'"):
        label_ids(LabelledTexts(("a",), ("x",)), ("y",))
    assert label_ids(LabelledTexts(("a",), ("x",)), ("y", "x")).tolist() == [1]
