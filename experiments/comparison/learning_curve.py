"""A learning curve in JSON lines: one evaluation per line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bilm.files.writing import write_text


class LearningCurve:
    """The evaluations of a run, in a file that grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._path.parent.mkdir(parents=True, exist_ok=True)

    def points(self) -> list[dict[str, Any]]:
        """Return all evaluations."""
        if not self._path.is_file():
            return []
        return [json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines()]

    def cut(self, step: int) -> None:
        """Drop evaluations after a step, which a resumed run computes again."""
        kept = [point for point in self.points() if point["step"] <= step]
        write_text(self._path, "".join(json.dumps(point) + "\n" for point in kept))

    def add(self, *, step: int, seconds: float, words: int, loss: float) -> None:
        """Append an evaluation."""
        point = {"step": step, "seconds": seconds, "words": words, "loss": loss}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(point) + "\n")
