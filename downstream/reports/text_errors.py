"""Texts with a wrong prediction: as records, in report.md, and on an HTML page.

An error has one text or two, with a wrong class, wrong labels, or a number that is far off. All
texts are escaped on the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from downstream.heads.class_outputs import Probabilities
from downstream.reports.error_pages import (
    ERRORS_FILE,
    ERRORS_PAGE,
    LABEL_MEANINGS,
    MAX_ERRORS_ON_PAGE,
    SHOWN_ERRORS,
    errors_document,
    side_line,
)
from downstream.reports.pages import json_lines, literal, plain_numbers
from downstream.training.experiment import Results

_MAX_CHARACTERS = {"report": 300, "page": 5_000}  # of each text


@dataclass(frozen=True)
class TextError:
    """The base class of errors; `texts` are those of the example, by their names in records."""

    place: str
    texts: Mapping[str, str]

    def outcome(self) -> dict[str, Any]:
        """Return what was true and what was predicted, for a record."""
        raise NotImplementedError

    def summary(self) -> str:
        """Return the same in one line of Markdown."""
        raise NotImplementedError

    def sides(self) -> tuple[str, str]:
        """Return the true and the predicted side in HTML."""
        raise NotImplementedError

    def record(self) -> dict[str, Any]:
        """Return the error as a JSON object."""
        return {"place": self.place, **self.texts, **self.outcome()}

    def paragraph(self) -> str:
        """Return the error as an item of a list in Markdown."""
        texts = [literal(_shortened(text, "report")) for text in self.texts.values()]
        return "- " + "  \n  ".join([*texts, self.summary()])

    def article(self) -> str:
        """Return the error as a part of the page."""
        texts = [
            f'<p dir="auto">{escape(_shortened(text, "page"))}</p>' for text in self.texts.values()
        ]
        truth, predicted = self.sides()
        sides = [side_line("true", truth), side_line("predicted", predicted)]
        place = f"<small>{escape(self.place)}</small>"
        return "\n".join(["<article>", *texts, *sides, f"{place}</article>"])


@dataclass(frozen=True)
class ClassError(TextError):
    """An example with a wrong class; `probability` is that of the predicted one."""

    label: str
    predicted: str
    probability: float

    def outcome(self) -> dict[str, Any]:
        """Return both classes and the probability."""
        return {
            "label": self.label,
            "predicted": self.predicted,
            "probability": round(self.probability, 4),
        }

    def summary(self) -> str:
        """Return both classes and the probability in one line."""
        label, predicted = literal(self.label), literal(self.predicted)
        return f"{label}, predicted: {predicted} ({self.probability:.2f})"

    def sides(self) -> tuple[str, str]:
        """Return the true class, and the predicted one with its probability, as HTML."""
        shown = f"{_mark(self.predicted, 'wrong')} ({self.probability:.2f})"
        return _mark(self.label, "missed"), shown


@dataclass(frozen=True)
class LabelSetError(TextError):
    """A text with missed or wrong labels, each with its probability, and those that are right."""

    missed: Mapping[str, float]
    wrong: Mapping[str, float]
    right: Sequence[str]

    def outcome(self) -> dict[str, Any]:
        """Return the missed and the wrong labels with their probabilities, and the right ones."""
        return {
            "missed": {label: round(p, 4) for label, p in self.missed.items()},
            "wrong": {label: round(p, 4) for label, p in self.wrong.items()},
            "right": list(self.right),
        }

    def summary(self) -> str:
        """Return the missed and the wrong labels in one line."""
        parts = []
        for heading, labels in (("missed", self.missed), ("wrong", self.wrong)):
            shown = [f"{literal(label)} ({p:.2f})" for label, p in labels.items()]
            parts.append(f"{heading}: {', '.join(shown) or '-'}")
        return "; ".join(parts)

    def sides(self) -> tuple[str, str]:
        """Return the true and the predicted labels as HTML."""
        right = [_mark(label, "right") for label in self.right]
        sides = []
        for kind, labels in (("missed", self.missed), ("wrong", self.wrong)):
            marked = [f"{_mark(label, kind)} ({p:.2f})" for label, p in labels.items()]
            sides.append(", ".join([*right, *marked]) or "none")
        return sides[0], sides[1]


@dataclass(frozen=True)
class NumberError(TextError):
    """A text with a number that is far from the predicted one."""

    number: float
    predicted: float

    def outcome(self) -> dict[str, Any]:
        """Return both numbers, and their difference."""
        return {
            "number": self.number,
            "predicted": float(str(np.float32(self.predicted))),
            "residual": float(f"{self.predicted - self.number:.7g}"),
        }

    def summary(self) -> str:
        """Return both numbers in one line."""
        number, predicted = self.sides()
        return f"{number}, predicted: {predicted}"

    def sides(self) -> tuple[str, str]:
        """Return both numbers as HTML."""
        number, predicted = plain_numbers([self.number, self.predicted], digits=3)
        return number, predicted


def class_errors(
    results: Results[Any], labels: Sequence[str], texts_of: Callable[[int], Mapping[str, str]]
) -> Iterator[ClassError]:
    """Yield every test example with a wrong class.

    `labels` are the names of the classes, and `texts_of` returns the texts of an example of the
    test file.
    """
    split = results.task.splits["test"]
    file = results.task.files[split.file]
    probabilities: Probabilities = results.chosen().test_predictions
    for place, label, row in zip(split.places, split.labels, probabilities, strict=True):
        predicted = int(row.argmax())
        if predicted != label:
            yield ClassError(
                file.place(place),
                texts_of(place),
                labels[label],
                labels[predicted],
                float(row[predicted]),
            )


def error_files(errors: Sequence[TextError], title: str, unit: str) -> dict[str, str]:
    """Return the files of the errors by name; `unit` is the plural of what has errors."""
    articles = [error.article() for error in errors[:MAX_ERRORS_ON_PAGE]]
    what = f"test {unit} with a wrong prediction"
    marked = "".join(articles)
    meanings = {kind: m for kind, m in LABEL_MEANINGS.items() if f'<mark class="{kind}">' in marked}
    return {
        ERRORS_FILE: json_lines(error.record() for error in errors),
        ERRORS_PAGE: errors_document(title, what, articles, len(errors), meanings),
    }


def error_section(errors: Sequence[TextError], unit: str) -> Iterator[str]:
    """Yield the paragraphs of report.md about the errors."""
    yield "## Errors (test)"
    if not errors:
        yield f"None of the {unit} has a wrong prediction."
        return
    yield (
        f"{len(errors):,} {unit} have a wrong prediction. The first of them are below; "
        f"[{ERRORS_PAGE}]({ERRORS_PAGE}) shows up to {MAX_ERRORS_ON_PAGE}, and `{ERRORS_FILE}` "
        "has all of them."
    )
    for error in errors[:SHOWN_ERRORS]:
        yield error.paragraph()


def residual_section(errors: Sequence[TextError]) -> Iterator[str]:
    """Yield the paragraphs of report.md about the largest errors of a regression."""
    yield "## Largest errors (test)"
    yield f"`{ERRORS_FILE}` has the {len(errors):,} texts with the largest errors, in this order."
    for error in errors[:SHOWN_ERRORS]:
        yield error.paragraph()


def _shortened(text: str, where: str) -> str:
    """Return a text in one line; a long one is cut."""
    line, limit = " ".join(text.split()), _MAX_CHARACTERS[where]
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def _mark(label: str, kind: str) -> str:
    return f'<mark class="{kind}">{escape(label)}</mark>'
