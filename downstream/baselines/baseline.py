"""The result of a baseline, and the names of all baselines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from downstream.tasks.scores import Scores

TITLES = {
    "majority": "most frequent class",
    "tfidf": "TF-IDF of words and word pairs, logistic regression",
    "svm": "word and character n-grams, linear SVM",
    "glove": "mean of given word vectors, logistic regression",
    "svd": "mean of SVD vectors of co-occurrences, logistic regression",
    "skipgram": "mean of skip-gram vectors, logistic regression",
    "untrained": "untrained biLM, same head",
}

NAMES = tuple(TITLES)  # in the order in which they run


@dataclass(frozen=True)
class Baseline:
    """The scores of a baseline by split, what was chosen on the validation split, and the cost."""

    name: str
    title: str
    chosen: dict[str, Any]
    scores: dict[str, Scores]
    cpu_seconds: float
