"""Small passages in which the answer is the word after a name in the question."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.downstream.order_task import FILLERS, tiny_bilm, write_vectors

Record = dict[str, Any]

ANSWERS = [word for word in FILLERS if word not in ("a", "the")]  # articles do not count in scores


def passages(count: int, seed: int) -> list[Record]:
    """Return passages with a word after First and one after second, and a question about each."""
    rng = np.random.default_rng(seed)
    result = []
    for i in range(count):
        parts = [[str(word) for word in rng.choice(FILLERS, size=rng.integers(1, 4))]]
        names = ["First", "second"] if i % 2 else ["second", "First"]
        parts += [[name, str(rng.choice(ANSWERS))] for name in names]
        context = " ".join(word for part in parts for word in part)
        qas = []
        for name, answer in parts[1:]:
            start = context.index(name) + len(name) + 1
            reference = {"text": answer, "answer_start": start}
            question = f"the cat {name}" if name == "First" else f"{name} mat"
            qas.append({"id": f"{seed}-{i}-{name}", "question": question, "answers": [reference]})
        result.append({"context": context, "qas": qas, "title": "ignored"})
    return result


def write_lines(path: Path, records: list[Record]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def squad(records: list[Record]) -> Record:
    """Return the records in SQuAD's JSON, one article per passage."""
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": [r]} for r in records]}


def make_span_place(directory: Path) -> Path:
    """Write a tiny model, word vectors and passages."""
    tiny_bilm().save_pretrained(directory / "model")
    write_vectors(directory / "vectors.txt")
    for name, count, seed in (("train", 120, 1), ("validation", 20, 2), ("test", 20, 3)):
        write_lines(directory / f"{name}.jsonl", passages(count, seed))
    return directory


def span_flags(place: Path, output: str, *more: str) -> list[str]:
    files = [f"--{name}={place / (name + '.jsonl')}" for name in ("train", "validation", "test")]
    training = ["--epochs=12", "--patience=12", "--learning-rate=0.02", "--encoder-dim=12"]
    sizes = ["--span-dim=8", "--batch-size=4", "--dropout=0"]
    return [*files, f"--output={place / output}", *training, *sizes, *more]
