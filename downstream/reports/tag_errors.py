"""Sentences with wrong tags as records, and a page that shows them with their spans marked.

The page is one HTML file without scripts. All texts are escaped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from downstream.reports.error_pages import (
    LABEL_MEANINGS,
    LABEL_STYLE,
    MAX_ERRORS_ON_PAGE,
    side_line,
)
from downstream.reports.pages import html_document, marks_legend
from downstream.texts.tag_sequences import Span, ranges_of


@dataclass(frozen=True)
class TagError:
    """A test example with an error: its true and its predicted spans."""

    place: str
    words: tuple[str, ...]
    truth: Collection[Span]
    predicted: Collection[Span]
    predicate: int | None = None

    @property
    def missed(self) -> list[Span]:
        """The true spans that were not predicted, from left to right."""
        return _in_order(set(self.truth) - set(self.predicted))

    @property
    def wrong(self) -> list[Span]:
        """The predicted spans that are not true, from left to right."""
        return _in_order(set(self.predicted) - set(self.truth))

    def text_of(self, span: Span) -> str:
        """Return the words of a span, with an ellipsis between its ranges."""
        return " ... ".join(" ".join(self.words[r.start : r.end]) for r in ranges_of(span))

    def record(self) -> dict[str, Any]:
        """Return the error as a JSON object."""
        record: dict[str, Any] = {
            "place": self.place,
            "words": list(self.words),
            "missed": list(map(_fields, self.missed)),
            "wrong": list(map(_fields, self.wrong)),
        }
        return record | ({} if self.predicate is None else {"predicate": self.predicate})


def _fields(span: Span) -> list[Any]:
    """Return the type and the first range of a span, and its other ranges if there are some."""
    return [*span[:3], *([list(map(list, span.rest))] if span.rest else [])]


def _in_order(spans: Collection[Span]) -> list[Span]:
    return sorted(spans, key=lambda span: (span.start, span.end, span.type))


@dataclass(frozen=True)
class PageHeading:
    """What is above the errors on the page; `source` is a line in HTML about the test file."""

    title: str
    unit: str  # of what has errors, in the plural
    num_examples: int  # in the test split
    source: str


def num_errors_of(num_errors: int, num_examples: int, unit: str) -> str:
    """Return the statement about how many examples have an error."""
    return f"{num_errors:,} of {num_examples:,} test {unit} have an error"


def errors_page(errors: Sequence[TagError], heading: PageHeading) -> str:
    """Return the HTML page of the first errors; the legend has the marks that occur."""
    shown = errors[:MAX_ERRORS_ON_PAGE]
    number = num_errors_of(len(errors), heading.num_examples, heading.unit)
    if len(shown) < len(errors):
        number += f"; the first {len(shown):,} are shown"
    meanings = dict(LABEL_MEANINGS)
    if not any(set(error.truth) & set(error.predicted) for error in shown):
        del meanings["right"]
    legend = marks_legend(meanings)
    if any(error.predicate is not None for error in shown):
        legend += ", <u>underlined</u>: the predicate"
    introduction = f"<p>{number}. {legend}.</p>"
    return html_document(
        heading.title, LABEL_STYLE, [heading.source, introduction, *map(_article, shown)]
    )


def _article(error: TagError) -> str:
    rows = (("true", error.truth, error.missed), ("predicted", error.predicted, error.wrong))
    lines = []
    for side, spans, marked in rows:
        kind = "missed" if side == "true" else "wrong"
        kinds = {
            part: kind if span in marked else "right" for span in spans for part in ranges_of(span)
        }
        words = " ".join(_marked_words(error, {part: kinds[part] for part in _in_order(kinds)}))
        lines.append(side_line(side, words))
    return "\n".join(["<article>", *lines, f"<small>{escape(error.place)}</small></article>"])


def _marked_words(error: TagError, kinds: dict[Span, str]) -> Iterator[str]:
    """Yield words and marked spans, which do not overlap, from left to right.

    The predicate of a sentence is underlined.
    """
    words = [
        f"<u>{escape(word)}</u>" if i == error.predicate else escape(word)
        for i, word in enumerate(error.words)
    ]
    place = 0
    for span, kind in kinds.items():
        yield from words[place : span.start]
        text = " ".join(words[span.start : span.end])
        yield f'<mark class="{kind}">{text}<sub>{escape(span.type)}</sub></mark>'
        place = span.end
    yield from words[place:]
