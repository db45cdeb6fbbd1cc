"""A tiny biLM, and texts whose class depends only on the order of two words."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import torch

from bilm.model.language_model import BiLm
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.tokenizers import WhitespaceTokenizer
from bilm.text.vocabulary import Vocabulary
from tests.conftest import tiny_model_config

FILLERS = ["the", "cat", "sat", "on", "a", "mat"]
WORDS = [*FILLERS, "First", "second"]


def tiny_bilm(seed: int = 0) -> PretrainedBiLm:
    torch.manual_seed(seed)
    vocabulary = Vocabulary(["<S>", "</S>", "<UNK>", *WORDS])
    model = BiLm(tiny_model_config(), len(vocabulary))
    return PretrainedBiLm(model, vocabulary, WhitespaceTokenizer())


def order_texts(count: int, seed: int) -> list[tuple[str, str]]:
    """Return pairs of label and text: `up` if First comes before second, else `down`."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        words = [str(word) for word in rng.choice(FILLERS, size=rng.integers(1, 5))]
        pair = ["First", "second"] if i % 2 else ["second", "First"]
        place = int(rng.integers(0, len(words) + 1))
        words[place:place] = pair
        rows.append(("up" if i % 2 else "down", " ".join(words)))
    return rows


def write_csv(path: Path, rows: list[tuple[str, str]]) -> Path:
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("label", "text"), *rows])
    return path


def write_vectors(path: Path, dim: int = 4) -> Path:
    rng = np.random.default_rng(7)
    lines = [
        f"{word.lower()} {' '.join(f'{x:.4f}' for x in rng.standard_normal(dim))}\n"
        for word in WORDS
    ]
    path.write_text("".join(lines), encoding="utf-8")
    return path
