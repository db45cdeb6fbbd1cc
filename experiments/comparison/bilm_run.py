"""The training time, throughput and learning curve of a biLM, from the metrics of its run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from bilm.errors import CheckpointError
from bilm.files.strict_json import read_json
from experiments.comparison.learning_curve import LearningCurve


def training_of(run: Path, curve: Path) -> dict[str, Any]:
    """Return the figures of a run, and write its held-out losses as a learning curve.

    The metrics contain the throughput of each interval, not the time. The time is the sum of words
    divided by throughput, and of the time of evaluations.
    """
    config = read_json(run / "config.json", CheckpointError)
    per_step = config["deepspeed"]["train_batch_size"] * config["data"]["unroll_steps"]
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    seconds, step, memory_gib = 0.0, 0, 0.0
    points = LearningCurve(curve)
    points.cut(-1)
    for event in map(json.loads, lines):
        if event["event"] == "train":
            seconds += (event["step"] - step) * per_step / event["words_per_second"]
            step = event["step"]
            memory_gib = max(memory_gib, event["memory_gib"])
        elif event["event"] == "heldout":
            seconds += event["seconds"]
            loss = math.log(event["perplexity"])
            points.add(step=event["step"], seconds=seconds, words=step * per_step, loss=loss)
    if not step:
        raise CheckpointError(f"{run / 'metrics.jsonl'} has no training steps")
    return {
        "steps": step,
        "seconds": seconds,
        "words": step * per_step,
        "words_per_second": step * per_step / seconds,
        "memory_gib": memory_gib,
    }
