"""Small tagged sentences whose tags depend on the neighbors of a word, and the files of a task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.downstream.order_task import FILLERS, tiny_bilm, write_vectors

Tagged = list[tuple[str, str]]


def sentences(count: int, seed: int) -> list[Tagged]:
    """Return sentences in which `First second` is a PER and a single `second` is a LOC."""
    rng = np.random.default_rng(seed)
    result = []
    for i in range(count):
        words: Tagged = [(str(word), "O") for word in rng.choice(FILLERS, size=rng.integers(1, 5))]
        name = [("First", "B-PER"), ("second", "I-PER")] if i % 2 else [("second", "B-LOC")]
        place = int(rng.integers(0, len(words) + 1))
        words[place:place] = name
        result.append(words)
    return result


def write_columns(path: Path, rows: list[Tagged]) -> Path:
    text = "\n".join("".join(f"{word}\tX\t{tag}\n" for word, tag in row) for row in rows)
    path.write_text(text, encoding="utf-8")
    return path


def roles(count: int, seed: int) -> list[dict[str, Any]]:
    """Return sentences with two predicates each; ARG0 is the word before a predicate."""
    rng = np.random.default_rng(seed)
    result = []
    for _ in range(count):
        words = [str(word) for word in rng.choice(FILLERS, size=3)]
        words = [words[0], "sat", words[1], "ran", words[2]]
        predicates = []
        for index in (1, 3):
            tags = ["O"] * 5
            tags[index - 1 : index + 1] = ["B-ARG0", "B-V"]
            predicates.append({"index": index, "lemma": words[index], "tags": tags})
        result.append({"tokens": words, "predicates": predicates})
    return result


def write_roles(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def make_tag_place(directory: Path) -> Path:
    """Write a tiny model, word vectors, and files of all tagging tasks."""
    tiny_bilm().save_pretrained(directory / "model")
    write_vectors(directory / "vectors.txt")
    for name, count, seed in (("train", 120, 1), ("validation", 40, 2), ("test", 40, 3)):
        write_columns(directory / f"{name}.tsv", sentences(count, seed))
        write_roles(directory / f"{name}.jsonl", roles(count // 2, seed))
    return directory


def tag_flags(place: Path, output: str, *more: str, suffix: str = ".tsv") -> list[str]:
    files = [f"--{n}={place / (n + suffix)}" for n in ("train", "validation", "test")]
    training = ["--epochs=8", "--batch-size=8", "--learning-rate=0.02", "--encoder-dim=12"]
    return [*files, f"--output={place / output}", *training, "--dropout=0", *more]


def results(place: Path, output: str) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads((place / output / "results.json").read_text("utf-8"))
    return tree
