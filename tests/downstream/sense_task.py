"""Sentences in which the sense of `bank` and `run` depends on their neighbors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.downstream.topic_task import SHARED, TOPICS

NAMES = list(TOPICS)


def sense_rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Return sentences with an instance of `bank`, and in some also one of two words."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for _ in range(count):
        topic = NAMES[rng.integers(len(NAMES))]
        before, after = (str(word) for word in rng.choice(TOPICS[topic], 2))
        tokens = [str(rng.choice(SHARED)), before, "bank", after]
        instances = [instance(2, 2, "bank", [f"bank%{topic}"])]
        if rng.random() < 0.3:
            tokens += ["runs_near", str(rng.choice(SHARED))]
            other = NAMES[rng.integers(len(NAMES))]
            instances.append(instance(4, 5, "run", [f"run%{topic}", f"run%{other}"]))
        rows.append({"tokens": tokens, "instances": instances})
    return rows


def instance(
    start: int, end: int, lemma: str, keys: Sequence[str], pos: str = "NOUN"
) -> dict[str, Any]:
    return {"start": start, "end": end, "lemma": lemma, "pos": pos, "keys": list(keys)}


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
