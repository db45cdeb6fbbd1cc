"""Small documents with clusters, and the files of a coreference task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.downstream.order_task import tiny_bilm, write_vectors


def documents(count: int, seed: int, singletons: bool = True) -> list[dict[str, Any]]:
    """Return documents of two sentences, in which equal names and `a cat` ... `the cat` corefer.

    The mat is mentioned once; it is a cluster of one mention.
    """
    rng = np.random.default_rng(seed)
    result = []
    for i in range(count):
        name = ["First", "second"][int(rng.integers(2))]
        one = (
            [name, "sat", "on", "a", "mat"] if rng.integers(2) else ["on", "a", "mat", name, "sat"]
        )
        two = ["a", "cat", "sat"] if rng.integers(2) else ["sat", "a", "cat"]
        three = ["the", "cat", "sat", "on", name]
        sentences = [one, two, three]
        words = [word for sentence in sentences for word in sentence]
        last_name = len(words) - 1
        mat, cat = words.index("mat"), words.index("cat")
        clusters = [
            [[words.index(name)] * 2, [last_name, last_name]],
            [[cat - 1, cat], [8, 9]],
        ]
        if singletons:
            clusters.append([[mat - 1, mat]])
        result.append({"doc": f"d{seed}_{i}", "sentences": sentences, "clusters": clusters})
    return result


def write_documents(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def make_coref_place(directory: Path) -> Path:
    """Write a tiny model, word vectors, and the files of the task."""
    tiny_bilm().save_pretrained(directory / "model")
    write_vectors(directory / "vectors.txt")
    for name, count, seed in (("train", 24, 1), ("validation", 8, 2), ("test", 8, 3)):
        write_documents(directory / f"{name}.jsonl", documents(count, seed))
    return directory


def coref_flags(place: Path, output: str, *more: str) -> list[str]:
    files = [f"--{n}={place / n}.jsonl" for n in ("train", "validation", "test")]
    sizes = ["--encoder-dim=12", "--hidden-dim=16", "--max-span-words=3", "--dropout=0"]
    training = ["--epochs=20", "--patience=20", "--batch-size=2", "--learning-rate=0.02"]
    return [*files, f"--output={place / output}", *sizes, *training, *more]
