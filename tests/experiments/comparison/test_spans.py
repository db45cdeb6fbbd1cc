from __future__ import annotations

import pytest

from experiments.comparison.spans import span_f1, spans_of


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("O O", []),
        ("B-PER I-PER O", [("PER", 0, 2)]),
        ("B-PER B-PER", [("PER", 0, 1), ("PER", 1, 2)]),
        ("B-PER I-LOC", [("PER", 0, 1), ("LOC", 1, 2)]),
        ("O I-ORG I-ORG", [("ORG", 1, 3)]),
        ("B-LOC O I-LOC", [("LOC", 0, 1), ("LOC", 2, 3)]),
    ],
)
def test_spans(tags: str, spans: list[tuple[str, int, int]]) -> None:
    assert list(spans_of(tags.split())) == spans


def test_f1_counts_exact_spans() -> None:
    truth = [["B-PER", "I-PER", "O", "B-LOC"], ["B-ORG", "O"]]
    predicted = [["B-PER", "I-PER", "O", "B-ORG"], ["O", "O"]]
    # One of two predicted and one of three true spans is correct.
    assert span_f1(truth, predicted) == pytest.approx(2 * 1 / (2 + 3))
    assert span_f1(truth, truth) == 1.0


def test_partial_span_is_wrong() -> None:
    assert span_f1([["B-PER", "I-PER"]], [["B-PER", "O"]]) == 0.0


def test_no_spans_give_zero() -> None:
    assert span_f1([["O"]], [["O"]]) == 0.0


def test_rejects_different_lengths() -> None:
    with pytest.raises(ValueError, match="2 tags and 1 predictions"):
        span_f1([["O", "O"]], [["O"]])
