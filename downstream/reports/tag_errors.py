"""Sentences with wrong tags as records, and a page that shows them with their spans marked.

The page is one HTML file without scripts. All texts are escaped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from downstream.reports.pages import html_document, marks_legend
from downstream.texts.tag_sequences import Span

MAX_SHOWN_ERRORS = 500

_MEANINGS = {
    "missed": "true, but not predicted",
    "wrong": "predicted, but not true",
    "right": "both",
}

_STYLE = """
body { font-family: sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222;
       background: #fff; }
article { border-top: 1px solid #ccc; padding: 0.6em 0; }
p { line-height: 1.9; margin: 0.2em 0; }
article p { padding-left: 6em; text-indent: -6em; }
b.side { display: inline-block; width: 6em; text-indent: 0; font-weight: normal; color: #595959; }
mark { color: inherit; border-radius: 3px; padding: 0.15em 0.25em; text-indent: 0; }
mark.right { background: #e3e3e3; }
mark.missed { background: #bfe3c3; border-bottom: 2px solid #2b7a37; }
mark.wrong { background: #f6c1b6; border-bottom: 2px dashed #b3311b; }
mark sub { font-weight: bold; padding-left: 0.3em; }
small { color: #595959; }
"""


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

    def record(self) -> dict[str, Any]:
        """Return the error as a JSON object."""
        record: dict[str, Any] = {
            "place": self.place,
            "words": list(self.words),
            "missed": list(map(list, self.missed)),
            "wrong": list(map(list, self.wrong)),
        }
        return record | ({} if self.predicate is None else {"predicate": self.predicate})


def _in_order(spans: Collection[Span]) -> list[Span]:
    return sorted(spans, key=lambda span: (span.start, span.end, span.type))


def errors_page(errors: Sequence[TagError], unit: str) -> str:
    """Return the HTML page of the first errors; `unit` is the plural of what has errors."""
    shown = errors[:MAX_SHOWN_ERRORS]
    legend = marks_legend(_MEANINGS)
    introduction = f"<p>{len(shown):,} of {len(errors):,} test {unit} with an error. {legend}.</p>"
    return html_document("Wrong tags", _STYLE, [introduction, *map(_article, shown)])


def _article(error: TagError) -> str:
    rows = (("true", error.truth, error.missed), ("predicted", error.predicted, error.wrong))
    lines = []
    for side, spans, marked in rows:
        kind = "missed" if side == "true" else "wrong"
        kinds = {span: kind if span in marked else "right" for span in _in_order(spans)}
        words = " ".join(_marked_words(error, kinds))
        lines.append(f'<p><b class="side">{side}</b>{words}</p>')
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
