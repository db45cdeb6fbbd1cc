"""Spans of BIO2 tags and their F1, as the default mode of seqeval and conlleval compute them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Span = tuple[str, int, int]  # type, first word, one past the last word


def spans_of(tags: Sequence[str]) -> Iterator[Span]:
    """Yield the spans of a sentence.

    An `I-` tag that does not continue a span of its type starts a new one.
    """
    start, kind = 0, ""
    for i, tag in enumerate([*tags, "O"]):
        prefix, _, name = tag.partition("-")
        if kind and (prefix != "I" or name != kind):
            yield kind, start, i
            kind = ""
        if prefix in ("B", "I") and not kind:
            start, kind = i, name


def span_f1(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """Return the F1 of all spans; 0 if no span is correct."""
    correct = num_true = num_predicted = 0
    for true_tags, predicted_tags in zip(truth, predicted, strict=True):
        if len(true_tags) != len(predicted_tags):
            raise ValueError(
                f"a sentence has {len(true_tags)} tags and {len(predicted_tags)} predictions; "
                "their numbers must be equal"
            )
        expected, found = set(spans_of(true_tags)), set(spans_of(predicted_tags))
        correct += len(expected & found)
        num_true += len(expected)
        num_predicted += len(found)
    return 2 * correct / (num_true + num_predicted) if correct else 0.0
