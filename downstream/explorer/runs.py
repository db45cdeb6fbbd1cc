"""The training curves of runs, read from metrics.jsonl while a run may still write to it.

Memory: the numbers of at most `MAX_POINTS` steps per curve.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bilm.errors import CorpusError
from bilm.files.reading import open_regular
from bilm.pretrained.file_names import METRICS_FILE

MAX_POINTS = 1000

_MAX_LINE_BYTES = 1 << 16

# The curves by the event and the field of a line.
_CURVES = {
    ("train", "loss"): "training loss",
    ("train", "loss_forward"): "training loss, forward",
    ("train", "loss_backward"): "training loss, backward",
    ("train", "words_per_second"): "words per second",
    ("heldout", "perplexity"): "held-out perplexity",
    ("heldout", "perplexity_forward"): "held-out perplexity, forward",
    ("heldout", "perplexity_backward"): "held-out perplexity, backward",
}


@dataclass(frozen=True)
class RunCurves:
    """A run whose curves the service shows."""

    directory: Path

    @property
    def name(self) -> str:
        """The name of the directory."""
        return self.directory.resolve().name

    def series(self) -> dict[str, list[list[float]]]:
        """Return pairs of step and value by curve, evenly thinned out."""
        curves: dict[str, list[list[float]]] = {}
        with open_regular(self.directory / METRICS_FILE, CorpusError) as file:
            while line := file.readline(_MAX_LINE_BYTES):
                if line.endswith(b"\n"):  # otherwise the run is writing this line
                    _add(curves, line)
        return {name: _thinned(points) for name, points in curves.items()}


def has_curves(directory: Path) -> bool:
    """Whether a directory is a run with metrics."""
    return (directory / METRICS_FILE).is_file()


def _add(curves: dict[str, list[list[float]]], line: bytes) -> None:
    try:
        tree: Any = json.loads(line)
        event, step = tree["event"], float(tree["step"])
    except (ValueError, KeyError, TypeError):
        return
    for (kind, field), name in _CURVES.items():
        value = tree.get(field)
        if kind == event and isinstance(value, int | float) and math.isfinite(value):
            curves.setdefault(name, []).append([step, float(value)])


def _thinned(points: list[list[float]]) -> list[list[float]]:
    if len(points) <= MAX_POINTS:
        return points
    stride = math.ceil(len(points) / MAX_POINTS)
    return [*points[:-1:stride], points[-1]]
