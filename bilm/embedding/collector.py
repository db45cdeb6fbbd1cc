"""bilm/embedding/collector."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from bilm.embedding.output import FloatArray, Output


class Collector:
    """Gathers the arrays of one batch, direction by direction and chunk by chunk.

    Takes the memory of its results alone: pooled ones do not grow with the words.
    """

    def __init__(
        self, output: Output, num_words: Sequence[int], num_layers: int, directions: int, dim: int
    ) -> None:
        self._output = output
        self._num_words = num_words
        self._dim = dim
        kept = num_layers if output.layers == "all" else 1
        width = directions * dim
        self._arrays: list[FloatArray] = []  # (kept, words, width) each
        if output.pool == "none":
            self._arrays = [np.empty((kept, n, width), output.dtype) for n in num_words]
        self._sums = self._maxima = np.empty(0)
        if output.pool in ("mean", "mean_max"):
            self._sums = np.zeros((len(num_words), kept, width))
        if output.pool in ("max", "mean_max"):
            self._maxima = np.full((len(num_words), kept, width), -np.inf, np.float32)

    def add(self, direction: int, start: int, layers: Sequence[Tensor]) -> None:
        """Take the steps from `start` on, (time, rows, dim) each, in the direction's own order.

        Border tokens, the first and the last step of a row, are left out.
        """
        chosen = self._output.chosen(layers).numpy()  # (kept, time, rows, dim)
        columns = slice(direction * self._dim, (direction + 1) * self._dim)
        for row in range(chosen.shape[2]):
            words = self._num_words[row]
            first = max(start, 1)
            stop = min(start + chosen.shape[1], words + 1)
            if first >= stop:
                continue
            part = chosen[:, first - start : stop - start, row]  # (kept, steps, dim)
            if len(self._arrays):
                # Step t reads word t - 1 forward, word `words - t` backward.
                if direction == 0:
                    self._arrays[row][:, first - 1 : stop - 1, columns] = part
                else:
                    target = slice(words - stop + 1, words - first + 1)
                    self._arrays[row][:, target, columns] = part[:, ::-1]
            if self._sums.size:
                self._sums[row, :, columns] += part.sum(axis=1, dtype=np.float64)
            if self._maxima.size:
                best = self._maxima[row, :, columns]
                np.maximum(best, part.max(axis=1), out=best)

    def results(self) -> list[FloatArray]:
        """One array a row."""
        return [self._result(row) for row in range(len(self._num_words))]

    def _result(self, row: int) -> FloatArray:
        if len(self._arrays):
            array = self._arrays[row]
        else:
            words = self._num_words[row]
            parts: list[FloatArray] = []
            if self._sums.size:
                parts.append(self._sums[row] / max(words, 1))
            if self._maxima.size:
                parts.append(self._maxima[row] if words else np.zeros_like(self._maxima[row]))
            array = np.concatenate(parts, axis=-1).astype(self._output.dtype)
        return array if self._output.layers == "all" else array[0]
