"""A part of an unfinished dump: a safetensors file with the arrays and the lines of one window.

It contains the shape of each array (`shapes`), the arrays one after another (`values`), and the
lines with their words as JSON (`lines`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bilm.embedding.vector_file import Line
from bilm.errors import OutputError
from bilm.files.writing import atomic_file
from bilm.pretrained.tensors import TensorFile, save_pieces


@dataclass(frozen=True)
class PartFile:
    """The part at `path`, which need not exist yet."""

    path: Path

    def write(self, arrays: Sequence[npt.NDArray[Any]], lines: Sequence[Line]) -> None:
        """Write arrays and their lines; a killed process leaves no part."""
        text = json.dumps([[line.text, *line.words] for line in lines], ensure_ascii=False)
        pieces: dict[str, list[npt.NDArray[Any]]] = {
            "lines": [np.frombuffer(text.encode("utf-8"), np.uint8)],
            "shapes": [np.array([array.shape for array in arrays], np.int64)],
            "values": [array.reshape(-1) for array in arrays],
        }
        with atomic_file(self.path) as temporary:
            save_pieces(pieces, temporary)

    def num_lines(self) -> int:
        """Return the number of lines."""
        return len(self._shapes())

    def contents(self) -> Iterator[tuple[npt.NDArray[Any], Line]]:
        """Yield each array with its line, after checking the whole part."""
        values, shapes, lines = self._read("values"), self._shapes().tolist(), self._lines()
        if (
            values.ndim != 1
            or sum(math.prod(shape) for shape in shapes) != len(values)
            or len(lines) != len(shapes)
        ):
            raise self._damaged('its "shapes", "values" and "lines" do not match')
        start = 0
        for shape, line in zip(shapes, lines, strict=True):
            size = math.prod(shape)
            yield values[start : start + size].reshape(shape), line
            start += size

    def _shapes(self) -> npt.NDArray[Any]:
        shapes = self._read("shapes")
        if shapes.ndim != 2 or shapes.dtype != np.int64 or (shapes < 0).any():
            raise self._damaged('its "shapes" array is invalid')
        return shapes

    def _lines(self) -> list[Line]:
        try:
            lines = json.loads(self._read("lines").tobytes())
            return [Line(text, words) for text, *words in lines]
        except (ValueError, TypeError) as e:
            raise self._damaged(f'its "lines" are invalid: {e}') from None

    def _read(self, name: str) -> npt.NDArray[Any]:
        try:
            with TensorFile(self.path, OutputError) as file:
                array: npt.NDArray[Any] = file.tensor(name).numpy()
                return array
        except (OutputError, TypeError) as e:  # TypeError: numpy lacks some types
            raise self._damaged(str(e)) from None

    def _damaged(self, reason: str) -> OutputError:
        return OutputError(
            f"{self.path} is damaged: {reason}; remove {self.path.parent} and start again"
        )
