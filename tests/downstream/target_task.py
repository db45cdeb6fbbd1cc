"""Texts with several labels, and texts with a number, that depend on their words."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.downstream.order_task import write_csv
from tests.downstream.topic_task import SHARED, TOPICS, golden_bilm, write_topic_vectors


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


def make_target_place(directory: Path) -> Path:
    """Write a model, word vectors, and training and test texts of both targets."""
    golden_bilm().save_pretrained(directory / "model")
    write_topic_vectors(directory / "vectors.txt")
    for name, texts in (("labels", label_texts), ("numbers", number_texts)):
        for split, count, seed in (("train", 300, 1), ("test", 60, 2)):
            write_csv(directory / f"{name}_{split}.csv", texts(count, seed))
    return directory


def target_flags(place: Path, target: str, *more: str) -> list[str]:
    name = {"multilabel": "labels", "regression": "numbers"}[target]
    return [
        f"--model={place / 'model'}",
        f"--train={place / f'{name}_train.csv'}",
        f"--test={place / f'{name}_test.csv'}",
        f"--cache={place / 'cache'}",
        f"--target={target}",
        f"--vectors={place / 'vectors.txt'}",
        "--learning-rate=0.02",
        "--dropout=0",
        "--epochs=20",
        "--patience=20",
        *more,
    ]
