"""Texts with several labels, and texts with a number, that depend on their words."""

from __future__ import annotations

import numpy as np

from tests.downstream.topic_task import SHARED, TOPICS


def label_texts(count: int, seed: int) -> list[tuple[str, str]]:
    """Return pairs of labels and text: a label for each topic that has a word in the text."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        topics = [name for name in TOPICS if rng.random() < 0.4]
        words = [*rng.choice(SHARED, 4), *(rng.choice(TOPICS[name]) for name in topics)]
        rows.append(("|".join(topics), " ".join(str(word) for word in rng.permutation(words))))
    return rows


def number_texts(count: int, seed: int) -> list[tuple[str, str]]:
    """Return pairs of number and text: 10 plus the number of words about sport."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        sport = i % 5
        words = [*rng.choice(SHARED, 5 - sport), *rng.choice(TOPICS["sport"], sport)]
        rows.append((f"{10 + sport}.0", " ".join(str(word) for word in rng.permutation(words))))
    return rows
