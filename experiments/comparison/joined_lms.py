"""Write the `system.json` of a pair of character LMs, and their common learning curve."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from bilm.errors import CheckpointError, run_command
from bilm.files.strict_json import read_json
from bilm.files.writing import write_text
from experiments.comparison.features import SYSTEM_FILE
from experiments.comparison.learning_curve import LearningCurve

DIRECTIONS = ("forward", "backward")


def main(argv: Sequence[str] | None = None) -> int:
    """Join the directions below `--output`."""
    parser = argparse.ArgumentParser(prog="python -m experiments.comparison.joined_lms")
    parser.add_argument("--output", type=Path, required=True)
    output = parser.parse_args(argv).output
    parts = [
        read_json(output / name / "language_model.json", CheckpointError) for name in DIRECTIONS
    ]
    seconds = sum(part["training"]["seconds"] for part in parts)
    words = sum(part["training"]["words"] for part in parts) / len(parts)
    tree = {
        "kind": "char_lms",
        "settings": {k: v for k, v in parts[0]["settings"].items() if k != "direction"},
        "training": {
            "parameters": sum(part["training"]["parameters"] for part in parts),
            "seconds": seconds,
            "words": round(words),  # that each direction reads
            "words_per_second": words / seconds,
        },
        "versions": parts[0]["versions"],
    }
    # Both directions read the same text for half of the time each: a point is the mean of both
    # losses at the sum of both times.
    curve = LearningCurve(output / "curve.jsonl")
    curve.cut(-1)
    points = [LearningCurve(output / name / "curve.jsonl").points() for name in DIRECTIONS]
    for forward, backward in zip(*points, strict=False):
        curve.add(
            step=forward["step"],
            seconds=forward["seconds"] + backward["seconds"],
            words=forward["words"],
            loss=(forward["loss"] + backward["loss"]) / 2,
        )
    write_text(output / SYSTEM_FILE, json.dumps(tree, indent=1) + "\n")
    print(json.dumps(tree))
    return 0


if __name__ == "__main__":
    run_command(main)
