"""Wrong answers as records, and a page that shows them in their passages.

The page is one HTML file without scripts. All texts are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any

from downstream.reports.error_pages import MAX_ERRORS_ON_PAGE
from downstream.reports.pages import html_document, marks_legend
from downstream.texts.offsets import Range
from downstream.texts.passages import Question

_STYLE = """
body { font-family: sans-serif; max-width: 50em; margin: 2em auto; padding: 0 1em; color: #222; }
article { border-top: 1px solid #ccc; padding: 0.5em 0; }
h2 { font-size: 1.05em; }
p.context { line-height: 1.6; white-space: pre-wrap; }
mark { color: inherit; padding: 0 0.1em; }
mark.predicted { background: #f6c1b6; border-bottom: 2px dashed #b3311b; }
mark.reference { background: #bfe3c3; border-bottom: 2px solid #2b7a37; }
mark.both { background: #f3e29b; border-bottom: 4px double #6b5900; }
small { color: #595959; }
"""

_MEANINGS = {
    "predicted": "predicted (dashed line)",
    "reference": "reference (solid line)",
    "both": "predicted and reference (double line)",
}


@dataclass(frozen=True)
class SpanError:
    """A question whose predicted answer is not an exact match."""

    context: str
    question: Question
    answer: Range  # of characters of the context
    probability: float
    f1: float

    @property
    def overlaps(self) -> bool:
        """Whether the predicted answer has a character in common with a reference."""
        start, end = self.answer
        return any(r.start < end and start < r.end for r in self.question.references)

    def record(self) -> dict[str, Any]:
        """Return the error as a JSON object."""
        start, end = self.answer
        return {
            "place": self.question.place,
            "id": self.question.id,
            "question": self.question.text,
            "prediction": {
                "text": self.context[start:end],
                "start": start,
                "end": end,
                "score": round(self.probability, 6),
            },
            "references": [
                {"text": r.text, "start": r.start, "end": r.end} for r in self.question.references
            ],
            "f1": round(self.f1, 6),
        }


def most_probable(errors: Iterable[SpanError]) -> list[SpanError]:
    """Return the errors by the probability of their answers, the highest first."""
    return sorted(errors, key=lambda error: -error.probability)


def error_counts(errors: Sequence[SpanError], num_questions: int) -> str:
    """Return a sentence with the number of errors, and of those that overlap a reference."""
    overlapping = sum(error.overlaps for error in errors)
    return (
        f"{len(errors):,} of {num_questions:,} test questions have an answer that is not an exact "
        f"match: {overlapping:,} answers overlap a reference, and {len(errors) - overlapping:,} "
        "are at another place."
    )


def errors_page(errors: Sequence[SpanError], num_questions: int, source: str) -> str:
    """Return the HTML page of the errors with the most probable answers.

    `source` is a line in HTML about the test file, which has `num_questions`.
    """
    shown = most_probable(errors)[:MAX_ERRORS_ON_PAGE]
    introduction = (
        f"<p>{error_counts(errors, num_questions)} {len(shown):,} are shown, the highest "
        f"probability of the predicted answer first.</p><p>{marks_legend(_MEANINGS)}.</p>"
    )
    return html_document("Wrong answers", _STYLE, [source, introduction, *map(_article, shown)])


def _article(error: SpanError) -> str:
    question = error.question
    references = dict.fromkeys(r.text for r in question.references)
    return "\n".join(
        [
            f'<article><h2 dir="auto">{escape(question.text)}</h2>',
            f'<p>Predicted: <b dir="auto">{escape(error.context[slice(*error.answer)])}</b> '
            f"<small>(probability {error.probability:.2f}, F1 {error.f1:.2f})</small><br>"
            f"References: {'; '.join(f'<bdi>{escape(text)}</bdi>' for text in references)}</p>",
            f'<p class="context" dir="auto">{marked_context(error)}</p>',
            f"<small>{escape(question.place)}, id {escape(question.id)}</small></article>",
        ]
    )


def marked_context(error: SpanError) -> str:
    """Return the escaped context, in which the predicted and the reference spans are marked."""
    references = [Range(r.start, r.end) for r in error.question.references]
    cuts = {0, len(error.context), *error.answer, *(place for r in references for place in r)}
    places = sorted(cuts)
    parts = []
    for start, end in pairwise(places):
        text = escape(error.context[start:end])
        is_reference = any(r.start <= start and end <= r.end for r in references)
        is_predicted = error.answer.start <= start and end <= error.answer.end
        kind = "both" if is_predicted else "reference"
        if is_predicted and not is_reference:
            kind = "predicted"
        parts.append(
            f'<mark class="{kind}">{text}</mark>' if is_predicted or is_reference else text
        )
    return "".join(parts)
