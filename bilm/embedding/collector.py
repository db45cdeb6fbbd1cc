"""Collect the arrays of one batch, chunk by chunk, in the form that `Output` describes.

Memory: only the results. Pooled results do not grow with the number of words; the mean is
accumulated in float64.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from bilm.embedding.output import FloatArray, Output


class Collector:
    """Collects the layers of a batch of sentences.

    Args:
        output: the form of the results.
        num_words: the number of words of each sentence, without boundary tokens.
        num_layers: the number of layers that `add` receives.
        num_directions: 1 or 2.
        dim: the width of one direction.
    """

    def __init__(
        self,
        output: Output,
        num_words: Sequence[int],
        num_layers: int,
        num_directions: int,
        dim: int,
    ) -> None:
        self._output = output
        self._num_words = num_words
        self._dim = dim
        shape = (num_layers if output.layers == "all" else 1, num_directions * dim)
        self._results = (
            _Words(output, num_words, shape)
            if output.pool == "none"
            else _Pooled(output, num_words, shape)
        )

    def add(self, direction: int, start: int, layers: Sequence[Tensor]) -> None:
        """Add the layers (time, rows, dim) from step `start` on, in the direction's reading order.

        Boundary tokens, the first and the last step of each row, are skipped.
        """
        chosen = self._output.chosen(layers).cpu().numpy()  # (kept, time, rows, dim)
        columns = slice(direction * self._dim, (direction + 1) * self._dim)
        for row in range(chosen.shape[2]):
            num_words = self._num_words[row]
            first = max(start, 1)
            stop = min(start + chosen.shape[1], num_words + 1)
            if first >= stop:
                continue
            part = chosen[:, first - start : stop - start, row]  # (kept, steps, dim)
            # Step t reads word t - 1 forward and word `num_words - t` backward.
            words = slice(first - 1, stop - 1)
            if direction == 1:
                last = num_words - stop
                words = slice(num_words - first, last if last >= 0 else None, -1)
            self._results.add(row, words, columns, part)

    def results(self) -> list[FloatArray]:
        """Return one array per row."""
        arrays = [self._results.result(row) for row in range(len(self._num_words))]
        return arrays if self._output.layers == "all" else [array[0] for array in arrays]


class _Words:
    """One vector per word: arrays (kept, words, width)."""

    def __init__(self, output: Output, num_words: Sequence[int], shape: tuple[int, int]) -> None:
        kept, width = shape
        self._arrays = [np.empty((kept, n, width), output.dtype) for n in num_words]

    def add(self, row: int, words: slice, columns: slice, part: FloatArray) -> None:
        self._arrays[row][:, words, columns] = part

    def result(self, row: int) -> FloatArray:
        return self._arrays[row]


class _Pooled:
    """The mean, the maximum or both over the words: arrays (kept, width) or (kept, 2 * width)."""

    def __init__(self, output: Output, num_words: Sequence[int], shape: tuple[int, int]) -> None:
        self._dtype = output.dtype
        self._num_words = num_words
        rows = len(num_words)
        self._sums = self._maxima = None
        if output.pool in ("mean", "mean_max"):
            self._sums = np.zeros((rows, *shape))
        if output.pool in ("max", "mean_max"):
            self._maxima = np.full((rows, *shape), -np.inf, np.float32)

    def add(self, row: int, words: slice, columns: slice, part: FloatArray) -> None:
        if self._sums is not None:
            self._sums[row, :, columns] += part.sum(axis=1, dtype=np.float64)
        if self._maxima is not None:
            maxima = self._maxima[row, :, columns]
            np.maximum(maxima, part.max(axis=1), out=maxima)

    def result(self, row: int) -> FloatArray:
        num_words = self._num_words[row]
        parts: list[FloatArray] = []
        if self._sums is not None:
            parts.append(self._sums[row] / max(num_words, 1))
        if self._maxima is not None:
            parts.append(self._maxima[row] if num_words else np.zeros_like(self._maxima[row]))
        return np.concatenate(parts, axis=-1).astype(self._dtype)
