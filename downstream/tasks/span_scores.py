"""Scores of answers: exact match and F1 as in SQuAD 1.1, for all questions and by question word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from downstream.texts.answers import AnswerScores, question_word, score_answer


class AnsweredQuestion(NamedTuple):
    """A question, its predicted answer and its references, as texts."""

    question: str
    answer: str
    references: tuple[str, ...]


@dataclass(frozen=True)
class MeanScores:
    """Exact match and F1, averaged over `support` questions."""

    exact_match: float
    f1: float
    support: int


@dataclass(frozen=True)
class SpanScores:
    """The scores of one split; `main` is F1."""

    main: float
    exact_match: float
    f1: float
    by_class: dict[str, MeanScores]  # by question word, most frequent first


def score_spans(answered: Sequence[AnsweredQuestion]) -> SpanScores:
    """Compare predicted answers with their references."""
    if not answered:
        raise ValueError("there are no answers to compare")
    rows: dict[str, list[AnswerScores]] = {}
    for question, answer, references in answered:
        rows.setdefault(question_word(question), []).append(score_answer(answer, references))
    total = _mean([scores for group in rows.values() for scores in group])
    by_size = sorted(rows, key=lambda word: (-len(rows[word]), word))
    by_class = {word: _mean(rows[word]) for word in by_size}
    return SpanScores(total.f1, total.exact_match, total.f1, by_class)


def _mean(scores: Sequence[AnswerScores]) -> MeanScores:
    count = len(scores)
    exact_match, f1 = (sum(column) / count for column in zip(*scores, strict=True))
    return MeanScores(exact_match, f1, count)
