"""Tag sequences: the rules of BIO, the conversion from IOB1, and the spans of a sequence.

In BIO2, every span of type X starts with B-X and continues with I-X. In IOB1, a span starts with
I-X, or with B-X if the word before it belongs to another span of the same type. Spans are those of
seqeval's default mode and of the CoNLL evaluation script: an I-X that continues nothing starts a
span.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

Scheme = Literal["bio", "iob1", "plain"]

OUTSIDE = "O"


class Span(NamedTuple):
    """A typed range of words; `end` is exclusive.

    A discontinuous span has further ranges in `rest`, from left to right.
    """

    type: str
    start: int
    end: int
    rest: tuple[tuple[int, int], ...] = ()


class SpanRules(NamedTuple):
    """Which spans are compared in scores.

    Spans of the types in `excluded` are left out. With `joins_continuations`, a span of type C-X is
    a further range of the last span of type X before it, as in the CoNLL evaluation of semantic
    roles; without such a span, it is a span of type X.
    """

    excluded: tuple[str, ...] = ()
    joins_continuations: bool = False


ALL_SPANS = SpanRules()

_CONTINUATION = "C-"


class BadTag(NamedTuple):
    """A tag that breaks a rule: its place in the sequence, the rule, and what to do in `tag`."""

    place: int
    reason: str
    remedy: str


def type_of(tag: str) -> str:
    """Return the type of a BIO tag, such as PER for B-PER."""
    return tag.partition("-")[2]


def may_follow(previous: str | None, tag: str) -> bool:
    """Return whether `tag` may follow `previous` in BIO2; `previous` is None at the start."""
    if not tag.startswith("I-"):
        return True
    return previous in (f"B-{type_of(tag)}", tag)


def find_bad_tag(tags: Sequence[str], scheme: Scheme) -> BadTag | None:
    """Return the first tag that is invalid in a scheme; `plain` accepts every tag."""
    if scheme == "plain":
        return None
    previous = None
    for i, tag in enumerate(tags):
        if tag != OUTSIDE and not (tag[:2] in ("B-", "I-") and type_of(tag)):
            reason = f"the tag {tag!r:.60} is not O, B-TYPE or I-TYPE"
            remedy = "Check --tag-column, or pass --scheme plain for tags without spans"
            return BadTag(i, reason, remedy)
        if scheme == "bio" and not may_follow(previous, tag):
            before = "starts the sentence" if previous is None else f"follows {previous!r}"
            reason = f"the tag {tag!r} {before}; in BIO it must follow B-{type_of(tag)} or {tag}"
            remedy = "Correct it, or pass --scheme iob1 if the file is in IOB1"
            return BadTag(i, reason, remedy)
        previous = tag
    return None


def bio_from_iob1(tags: Sequence[str]) -> tuple[str, ...]:
    """Convert a sequence from IOB1 to BIO2."""
    result: list[str] = []
    for tag in tags:
        previous = result[-1] if result else None
        result.append(tag if may_follow(previous, tag) else f"B-{type_of(tag)}")
    return tuple(result)


def spans_of(tags: Sequence[str]) -> list[Span]:
    """Return the spans of a sequence of BIO tags, which need not be legal."""
    spans: list[Span] = []
    start, current = 0, ""  # the type of the open span; empty outside of spans
    for i, tag in enumerate((*tags, OUTSIDE)):
        kind = "" if tag == OUTSIDE else type_of(tag)
        is_open = bool(current)
        if is_open and (kind != current or tag.startswith("B-")):
            spans.append(Span(current, start, i))
            is_open = False
        if kind and not is_open:
            start = i
        current = kind
    return spans


def f1_of(num_correct: int, num_predicted: int, num_true: int) -> float:
    """Return F1; 0 if there is nothing to find or nothing was found."""
    return 2 * num_correct / (num_predicted + num_true) if num_correct else 0.0


def compared_spans(tags: Sequence[str], rules: SpanRules) -> set[Span]:
    """Return the spans of a sequence that are compared in scores."""
    spans: Iterable[Span] = spans_of(tags)
    if rules.joins_continuations:
        spans = joined_continuations(spans)
    return {span for span in spans if span.type not in rules.excluded}


def joined_continuations(spans: Iterable[Span]) -> list[Span]:
    """Join spans of type C-X with the span of type X that they continue."""
    result: list[Span] = []
    last: dict[str, int] = {}  # the place in `result` of the last span of each type
    for span in spans:
        kind = span.type.removeprefix(_CONTINUATION)
        if kind != span.type and kind in last:
            begun = result[last[kind]]
            result[last[kind]] = begun._replace(rest=(*begun.rest, (span.start, span.end)))
        else:
            last[kind] = len(result)
            result.append(span._replace(type=kind))
    return result


def ranges_of(span: Span) -> list[Span]:
    """Return the ranges of a span as spans of their own; those after the first have type C-X."""
    further = (Span(f"{_CONTINUATION}{span.type}", start, end) for start, end in span.rest)
    return [span._replace(rest=()), *further]


def span_f1(
    truth: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    rules: SpanRules = ALL_SPANS,
) -> float:
    """Return the micro F1 of the spans of all sequences."""
    num_correct = num_predicted = num_true = 0
    for gold, found in zip(truth, predicted, strict=True):
        gold_spans, found_spans = compared_spans(gold, rules), compared_spans(found, rules)
        num_correct += len(gold_spans & found_spans)
        num_predicted += len(found_spans)
        num_true += len(gold_spans)
    return f1_of(num_correct, num_predicted, num_true)


def bio_labels(types: Sequence[str]) -> tuple[str, ...]:
    """Return the BIO tags of some types: O, then B and I of each type."""
    return (OUTSIDE, *(f"{prefix}-{kind}" for kind in sorted(types) for prefix in "BI"))
