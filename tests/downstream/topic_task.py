"""Texts of three topics with ambiguous words, and a directory with a model and labelled files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bilm.embedding.embedder import Embedder
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.tokenizers import WhitespaceTokenizer
from tests.conftest import GOLDEN
from tests.downstream.order_task import write_csv

TOPICS = {
    "river": ["water", "shore", "mud", "boat"],
    "money": ["loan", "cash", "credit", "teller"],
    "sport": ["ball", "goal", "team", "score"],
}
SHARED = ["the", "a", "bank", "and", "near"]


def topic_texts(count: int, seed: int) -> list[tuple[str, str]]:
    """Return pairs of label and text: two words of the topic and four that all topics share."""
    rng = np.random.default_rng(seed)
    names = list(TOPICS)
    rows = []
    for i in range(count):
        label = names[i % 3]
        words = [*rng.choice(SHARED, 4), *rng.choice(TOPICS[label], 2)]
        rows.append((label, " ".join(str(word) for word in rng.permutation(words))))
    return rows


def golden_bilm() -> PretrainedBiLm:
    """Return the golden model with a tokenizer."""
    published = PretrainedBiLm.from_published(GOLDEN / "options.json", GOLDEN / "weights.hdf5")
    return PretrainedBiLm(published.model, None, WhitespaceTokenizer())


def make_place(directory: Path) -> Path:
    """Write a model, training and test texts, and word vectors that separate the topics."""
    golden_bilm().save_pretrained(directory / "model")
    write_csv(directory / "train.csv", topic_texts(180, 1))
    write_csv(directory / "test.csv", topic_texts(90, 2))
    write_topic_vectors(directory / "vectors.txt")
    return directory


def write_topic_vectors(path: Path) -> None:
    """Write vectors of three numbers: 1 for the topic of a word, and zeros for shared words."""
    lines = [f"{word} 0 0 0\n" for word in SHARED]
    for i, words in enumerate(TOPICS.values()):
        one_hot = " ".join("1" if j == i else "0" for j in range(3))
        lines += [f"{word} {one_hot}\n" for word in words]
    path.write_text("".join(lines), encoding="utf-8")


def flags(place: Path, output: str, *more: str) -> list[str]:
    files = ["--train", str(place / "train.csv"), "--test", str(place / "test.csv")]
    directories = ["--output", str(place / output), "--cache", str(place / "cache")]
    return [*files, *directories, *more]


def head_flags(place: Path, output: str, *more: str) -> list[str]:
    training = ["--epochs", "6", "--batch-size", "16", "--learning-rate", "0.02"]
    return flags(place, output, "--model", str(place / "model"), *training, *more)


def embedder(place: Path) -> Embedder:
    return Embedder.from_pretrained(place / "model")
