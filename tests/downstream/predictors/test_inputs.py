from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from bilm.errors import CheckpointError, CorpusError
from downstream import (
    CoreferenceResolver,
    PairClassifier,
    QuestionAnswerer,
    Tagger,
    TextClassifier,
)
from downstream.predictors.head_files import CLASSES
from downstream.predictors.inputs import checked_document, checked_pairs, checked_sentence, listed
from downstream.predictors.predictor import checked_content

NAMES = ("question", "context")


@pytest.mark.parametrize("value", [["a", "b"], ("a", "b"), iter(["a", "b"]), np.array(["a", "b"])])
def test_any_iterable_is_a_list(value: Any) -> None:
    assert listed(value, "text") == ["a", "b"]


@pytest.mark.parametrize("value", ["a text", b"a", None, 5, {"a": 1}, {"a"}])
def test_rejects_what_is_not_a_list(value: Any) -> None:
    with pytest.raises(TypeError, match=r"expected a list of texts. For one text, pass \[text\]"):
        listed(value, "text")


class Case(NamedTuple):
    check: Callable[[Any, str], object]
    value: object
    error: type[Exception]
    message: str


def pair_check(value: object, name: str) -> object:
    return checked_pairs([value], NAMES)


CASES = [
    Case(checked_content, None, TypeError, "is None; expected a text, or a list of its words"),
    Case(checked_content, 5, TypeError, "is 5; expected a text, or a list of its words"),
    Case(checked_content, "a\0", CorpusError, "contains a NUL or an unpaired surrogate"),
    Case(checked_content, ["a", None], TypeError, "contains None; expected words"),
    Case(checked_sentence, "a b", TypeError, "is 'a b'; expected a list of words"),
    Case(checked_sentence, [["a"]], TypeError, r"contains \['a'\]; expected words"),
    Case(checked_sentence, ["a", " "], CorpusError, "contains ' '; expected words that are not"),
    Case(checked_sentence, ["a\ud800"], CorpusError, "contains a NUL or an unpaired surrogate"),
    Case(checked_document, "a", TypeError, "is 'a'; expected a list of sentences"),
    Case(checked_document, [], CorpusError, "has no sentences"),
    Case(checked_document, [["a"], []], CorpusError, "sentence 1 has no words"),
    Case(pair_check, ("a", 5), TypeError, "pair 1 of 1: the context is 5; expected a string"),
    Case(pair_check, None, TypeError, "pair 1 of 1 is None; expected two texts"),
    Case(pair_check, ("a\0", "b"), CorpusError, "pair 1 of 1: the question contains a NUL"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case.value))
def test_errors_name_the_item(case: Case) -> None:
    with pytest.raises(case.error, match=case.message):
        case.check(case.value, "item 1 of 1")


@pytest.mark.parametrize(
    ("owner", "file"),
    [
        (TextClassifier, "tagger.json"),
        (PairClassifier, "classifier.json"),
        (Tagger, "coref.json"),
        (QuestionAnswerer, "pair_classifier.json"),
        (CoreferenceResolver, "answerer.json"),
    ],
)
def test_names_the_class_of_another_head(tmp_path: Path, owner: Any, file: str) -> None:
    (tmp_path / file).write_text("{}")
    with pytest.raises(CheckpointError, match=f"has {file}, not .*; use {CLASSES[file]}"):
        owner.from_pretrained(tmp_path)
