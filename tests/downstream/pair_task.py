"""Small pairs of texts whose class depends on both texts, and the files of a task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.downstream.order_task import tiny_bilm, write_vectors

Row = tuple[str, str, str]

_KEYS = ("cat", "mat", "First")


def pairs(count: int, seed: int) -> list[Row]:
    """Return first text, second text and class: `same` if both contain the same key word.

    Every first text has two pairs, one of each class.
    """
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    while len(rows) < count:
        key, other = rng.choice(_KEYS, size=2, replace=False)
        first = _text(str(key), rng)
        rows += [(first, _text(str(key), rng), "same"), (first, _text(str(other), rng), "other")]
    return rows[:count]


def _text(key: str, rng: np.random.Generator) -> str:
    words = [str(word) for word in rng.choice(["the", "on", "a"], size=rng.integers(1, 4))]
    words.insert(int(rng.integers(0, len(words) + 1)), key)
    return " ".join(words)


def write_pairs(path: Path, rows: list[Row]) -> Path:
    names = ("sentence1", "sentence2", "label")
    lines = [json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def make_pair_place(directory: Path) -> Path:
    """Write a tiny model, word vectors, and the files of a task."""
    tiny_bilm().save_pretrained(directory / "model")
    write_vectors(directory / "vectors.txt")
    for name, count, seed in (("train", 240, 1), ("validation", 40, 2), ("test", 40, 3)):
        write_pairs(directory / f"{name}.jsonl", pairs(count, seed))
    return directory


def pair_flags(place: Path, output: str, *more: str) -> list[str]:
    files = [f"--{n}={place / n}.jsonl" for n in ("train", "validation", "test")]
    training = ["--epochs=12", "--batch-size=8", "--learning-rate=0.01", "--encoder-dim=12"]
    training += ["--hidden-dim=12", "--dropout=0", "--mix-dropout=0"]
    return [*files, f"--output={place / output}", *training, *more]


def results(place: Path, output: str) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads((place / output / "results.json").read_text("utf-8"))
    return tree
