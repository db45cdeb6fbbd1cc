"""Scores of tag sequences: F1 of spans as in seqeval, accuracy of words, and confused labels.

A predicted span is correct if its type, its first and its last word are those of a true span. A
discontinuous span is correct if all its ranges are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from downstream.tasks.scores import ClassScores
from downstream.texts.tag_sequences import ALL_SPANS, Span, SpanRules, compared_spans, f1_of

Sequences = Sequence[Sequence[str]]

_MAX_CONFUSIONS = 200


@dataclass(frozen=True)
class Confusion:
    """The number of words with a true label that were predicted as another one."""

    truth: str
    predicted: str
    count: int


@dataclass(frozen=True)
class TagScores:
    """The scores of one split.

    `main` is the F1 of all spans, or the accuracy of words if the tags have no spans; then
    precision, recall and F1 are those of the labels, averaged over words, and equal to the
    accuracy. `by_class` has the scores of each type or label. `confusions` are the most frequent
    pairs of a true and a wrong label, and `num_confusions` is the number of all such pairs.
    """

    main: float
    accuracy: float
    precision: float
    recall: float
    f1: float
    by_class: dict[str, ClassScores]
    confusions: tuple[Confusion, ...]
    num_confusions: int


def score_tags(
    truth: Sequences,
    predicted: Sequences,
    is_bio: bool,
    rules: SpanRules = ALL_SPANS,
) -> TagScores:
    """Compare predicted tags with the true ones."""
    if len(truth) != len(predicted) or not truth:
        raise ValueError(
            f"there are {len(truth)} true sequences and {len(predicted)} predicted ones; their "
            "numbers must be equal and above 0"
        )
    counts = _Counts()
    confused: Counter[tuple[str, str]] = Counter()
    num_words = num_right = 0
    for gold, found in zip(truth, predicted, strict=True):
        if is_bio:
            counts.add(compared_spans(gold, rules), compared_spans(found, rules))
        else:
            counts.add(_words(gold), _words(found))
        wrong = [(a, b) for a, b in zip(gold, found, strict=True) if a != b]
        confused.update(wrong)
        num_words += len(gold)
        num_right += len(gold) - len(wrong)
    total = counts.total()
    accuracy = num_right / num_words
    return TagScores(
        main=total.f1 if is_bio else accuracy,
        accuracy=accuracy,
        precision=total.precision,
        recall=total.recall,
        f1=total.f1,
        by_class=counts.by_class(),
        confusions=tuple(Confusion(a, b, n) for (a, b), n in _most_common(confused)),
        num_confusions=len(confused),
    )


def _words(tags: Sequence[str]) -> set[Span]:
    """Return every word as a span of its own."""
    return {Span(tag, i, i + 1) for i, tag in enumerate(tags)}


def _most_common(confused: Counter[tuple[str, str]]) -> list[tuple[tuple[str, str], int]]:
    return sorted(confused.items(), key=lambda item: (-item[1], item[0]))[:_MAX_CONFUSIONS]


class _Counts:
    """The numbers of true, predicted and correct spans by type."""

    def __init__(self) -> None:
        self._true: Counter[str] = Counter()
        self._predicted: Counter[str] = Counter()
        self._correct: Counter[str] = Counter()

    def add(self, truth: set[Span], predicted: set[Span]) -> None:
        self._true.update(span.type for span in truth)
        self._predicted.update(span.type for span in predicted)
        self._correct.update(span.type for span in truth & predicted)

    def total(self) -> ClassScores:
        numbers = [sum(c.values()) for c in (self._correct, self._predicted, self._true)]
        return _class_scores(numbers[0], numbers[1], numbers[2])

    def by_class(self) -> dict[str, ClassScores]:
        return {
            name: _class_scores(self._correct[name], self._predicted[name], self._true[name])
            for name in sorted(self._true.keys() | self._predicted.keys())
        }


def _class_scores(num_correct: int, num_predicted: int, num_true: int) -> ClassScores:
    return ClassScores(
        precision=num_correct / num_predicted if num_predicted else 0.0,
        recall=num_correct / num_true if num_true else 0.0,
        f1=f1_of(num_correct, num_predicted, num_true),
        support=num_true,
    )
