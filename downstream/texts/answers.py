"""The scores of an answer by the rules of SQuAD 1.1: exact match and F1 of words.

Before two answers are compared, they are converted to lower case, and ASCII punctuation, the
articles a, an and the, and repeated white space are removed. The score of an answer is the maximum
over its references.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)

_QUESTION_WORDS = {
    "who": "who",
    "whom": "who",
    "whose": "who",
    "what": "what",
    "when": "when",
    "where": "where",
    "which": "which",
    "why": "why",
    "how": "how",
}
OTHER_QUESTIONS = "other"


class AnswerScores(NamedTuple):
    """The scores of one answer."""

    exact_match: float
    f1: float


def normalized_words(answer: str) -> list[str]:
    """Return the words of an answer that count in the scores."""
    without_marks = answer.lower().translate(_WITHOUT_PUNCTUATION)
    return _ARTICLES.sub(" ", without_marks).split()


def score_answer(answer: str, references: Iterable[str]) -> AnswerScores:
    """Return the maximum over the references of exact match and of F1."""
    words = normalized_words(answer)
    pairs = [_compare(words, normalized_words(reference)) for reference in references]
    return AnswerScores(max(p.exact_match for p in pairs), max(p.f1 for p in pairs))


def _compare(words: list[str], reference: list[str]) -> AnswerScores:
    num_common = (Counter(words) & Counter(reference)).total()
    f1 = 2 * num_common / (len(words) + len(reference)) if num_common else 0.0
    return AnswerScores(float(words == reference), f1)


def question_word(question: str) -> str:
    """Return the first question word of a question, such as "who", or "other"."""
    words = re.findall(r"[^\W\d_]+", question.lower())
    found = (_QUESTION_WORDS[word] for word in words if word in _QUESTION_WORDS)
    return next(found, OTHER_QUESTIONS)
