"""The wrong answers of the best vectors for word senses: records, a page, and their most frequent.

The best vectors are those with the highest F1 on all test sets together; the most frequent sense is
not one of them. An instance without an answer is an error, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from downstream.analyses.nearest_senses import MOST_FREQUENT, SenseResult
from downstream.analyses.sense_scores import Answers
from downstream.reports.error_pages import (
    ERRORS_FILE,
    ERRORS_PAGE,
    LABEL_STYLE,
    MAX_ERRORS_ON_PAGE,
    SHOWN_ERRORS,
)
from downstream.reports.pages import html_document, json_lines, literal, markdown_table
from downstream.texts.senses import SenseInstance


@dataclass(frozen=True)
class SenseError:
    """An instance with a wrong answer, or without one."""

    place: str
    words: Sequence[str]  # of the sentence
    instance: SenseInstance
    predicted: str | None
    known: bool  # whether one of its senses is in training

    def text(self) -> str:
        """Return the words of the instance."""
        return " ".join(self.words[self.instance.start : self.instance.end])

    def truth(self) -> str:
        """Return the senses of the instance."""
        return " or ".join(self.instance.keys)

    def record(self) -> dict[str, Any]:
        """Return the error as a JSON object."""
        return {
            "place": self.place,
            "words": list(self.words),
            "start": self.instance.start,
            "end": self.instance.end,
            "instance": self.text(),
            "lemma": self.instance.lemma.name,
            "pos": self.instance.lemma.pos,
            "keys": list(self.instance.keys),
            "predicted": self.predicted,
            "sense_in_training": self.known,
        }


@dataclass(frozen=True)
class SenseErrors:
    """The errors of the vectors with this name."""

    name: str
    num_instances: int
    errors: Sequence[SenseError]
    num_by_lemma: Mapping[str, int]  # instances

    def files(self) -> dict[str, str]:
        """Return the text files of the analysis."""
        return {
            ERRORS_FILE: json_lines(error.record() for error in self.errors),
            ERRORS_PAGE: self._page(),
        }

    def _statement(self) -> str:
        without = sum(error.predicted is None for error in self.errors)
        unknown = sum(not error.known for error in self.errors)
        return (
            f"{len(self.errors):,} of {self.num_instances:,} instances have a wrong answer of the "
            f"best vectors ({self.name}), or none: {without:,} have no answer, and of {unknown:,} "
            "no correct sense is in training."
        )

    def _page(self) -> str:
        shown = self.errors[:MAX_ERRORS_ON_PAGE]
        introduction = (
            f'<p>{self._statement()} <a href="report.md">Report</a></p>'
            f"<p>The first {len(shown):,} are shown. The instance is "
            '<mark class="wrong">marked</mark>.</p>'
        )
        articles = [introduction, *map(_article, shown)]
        return html_document("Wrong word senses", LABEL_STYLE, articles)

    def paragraphs(self) -> list[str]:
        """Return the paragraphs of the report."""
        confusions = Counter(
            (error.truth(), error.predicted) for error in self.errors if error.predicted is not None
        )
        lemmas = Counter(_lemma_name(error.instance) for error in self.errors)
        unanswered = Counter(
            _lemma_name(error.instance) for error in self.errors if error.predicted is None
        )
        by_lemma = Counter(
            {
                (lemma, f"{self.num_by_lemma[lemma]:,}", f"{unanswered[lemma]:,}"): count
                for lemma, count in lemmas.items()
            }
        )
        return [
            "## Errors",
            f"{self._statement()} `{ERRORS_FILE}` has all of them, and "
            f"[{ERRORS_PAGE}]({ERRORS_PAGE}) shows up to {MAX_ERRORS_ON_PAGE} in their sentences.",
            "The most frequent confusions:",
            _table(["true sense", "predicted sense", "instances"], confusions),
            "The lemmas with most errors:",
            _table(["lemma", "instances", "without an answer", "all errors"], by_lemma),
        ]


def _table(heading: Sequence[str], counts: Counter[Any]) -> str:
    """Return a table of the most frequent tuples of texts with their counts."""
    shown = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:SHOWN_ERRORS]
    if not shown:
        return "None."
    return markdown_table(
        [heading, *([*map(literal, texts), f"{count:,}"] for texts, count in shown)]
    )


def _lemma_name(instance: SenseInstance) -> str:
    return f"{instance.lemma.name} ({instance.lemma.pos})"


def best_vectors(answers: Answers) -> str:
    """Return the name of the vectors with the highest F1."""
    scores = answers.scores()
    return max((name for name in scores if name != MOST_FREQUENT), key=lambda n: scores[n].f1)


def sense_errors(result: SenseResult) -> SenseErrors:
    """Return the errors of the best vectors on all test sets."""
    together = result.all_sets()
    name = best_vectors(together)
    errors = []
    for set_name, answers in result.by_set.items():
        file = result.tests[set_name]
        rows = zip(answers.instances, answers.keys[name], answers.known, strict=True)
        for instance, key, known in rows:
            if key not in instance.keys:
                words = file.sentences[instance.sentence]
                errors.append(SenseError(file.place(instance), words, instance, key, known))
    by_lemma = Counter(map(_lemma_name, together.instances))
    return SenseErrors(name, len(together.instances), errors, by_lemma)


def _article(error: SenseError) -> str:
    start, end = error.instance.start, error.instance.end
    before, inside, after = (
        escape(" ".join(part))
        for part in (error.words[:start], error.words[start:end], error.words[end:])
    )
    predicted = "no answer" if error.predicted is None else f"predicted {error.predicted}"
    return "\n".join(
        [
            f'<article><p dir="auto">{before} <mark class="wrong">{inside}</mark> {after}</p>',
            f"<p>{escape(_lemma_name(error.instance))}: true {escape(error.truth())}, "
            f"{escape(predicted)}</p>",
            f"<small>{escape(error.place)}</small></article>",
        ]
    )
