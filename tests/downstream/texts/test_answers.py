from __future__ import annotations

import collections
import re
import string

import numpy as np
import pytest

from downstream.texts.answers import normalized_words, question_word, score_answer


def reference_normalize(text: str) -> str:
    """Apply the rules one by one: lower case, punctuation, articles, white space."""
    text = text.lower()
    text = "".join(c for c in text if c not in set(string.punctuation))
    text = re.sub(r"\b(a|an|the)\b", " ", text)
    return " ".join(text.split())


def reference_f1(prediction: str, truth: str) -> float:
    predicted, true = reference_normalize(prediction).split(), reference_normalize(truth).split()
    common = sum((collections.Counter(predicted) & collections.Counter(true)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(predicted), common / len(true)
    return 2 * precision * recall / (precision + recall)


def reference_scores(prediction: str, truths: list[str]) -> tuple[float, float]:
    exact = max(float(reference_normalize(prediction) == reference_normalize(t)) for t in truths)
    return exact, max(reference_f1(prediction, truth) for truth in truths)


CASES = [
    ("The Cat", ["cat"], 1.0, 1.0),
    ("a cat, an owl", ["cat owl"], 1.0, 1.0),
    ("cat owl", ["cat", "owl cat"], 0.0, 1.0),
    ("the", ["a"], 1.0, 0.0),  # nothing is left of both: equal, without common words
    ("", ["cat"], 0.0, 0.0),
    ("cat cat", ["cat"], 0.0, 2 / 3),
    ("theatre", ["atre"], 0.0, 0.0),
    ("U.S.", ["us"], 1.0, 1.0),
    ("\u201cyes\u201d", ["yes"], 0.0, 0.0),  # only ASCII punctuation is removed
    ("10 000", ["10,000", "10 thousand"], 0.0, 0.5),
]


@pytest.mark.parametrize(("answer", "references", "exact", "f1"), CASES)
def test_follows_the_rules_of_squad(
    answer: str, references: list[str], exact: float, f1: float
) -> None:
    assert score_answer(answer, references) == pytest.approx((exact, f1))
    assert reference_scores(answer, references) == pytest.approx((exact, f1))


def test_agrees_with_an_independent_implementation_on_random_answers() -> None:
    rng = np.random.default_rng(0)
    pieces = ["a", "An", "the", "cat", "Cat", "dog", "x-y", ",", ".", "'s", "  ", "\n", "é", "10"]
    for _ in range(500):
        texts = [" ".join(rng.choice(pieces, size=rng.integers(0, 6))) for _ in range(4)]
        answer, *references = texts
        assert score_answer(answer, references) == pytest.approx(
            reference_scores(answer, references)
        )
        assert " ".join(normalized_words(answer)) == reference_normalize(answer)


def test_finds_the_first_question_word() -> None:
    questions = {
        "Who sat?": "who",
        "In which year did what happen?": "which",
        "WHOSE mat?": "who",
        "How many?": "how",
        "What's on the mat?": "what",
        "Name the cat.": "other",
        "somehow": "other",
    }
    assert {text: question_word(text) for text in questions} == questions
