"""Exact search for the rows with the largest cosines, in blocks of a matrix of any size.

Each block is one matrix-vector product, and a heap keeps the best rows so far. A million rows of
384 float16 values are 0.77 GB to read per query; memory is one block in float32, 6 MB.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]
    Ids = npt.NDArray[np.int64]

BLOCK_ROWS = 4096  # fits into the cache in float32; 16,384 took twice as long

_MIN_NORM = 1e-12


class Rows(Protocol):
    """Rows of numbers in memory or in a mapped file."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: slice, /) -> Any:
        """Return the rows of a slice (rows, dim), in float16 or float32."""


@dataclass(frozen=True)
class Match:
    """A row and its cosine with the query."""

    row: int
    cosine: float


@dataclass(frozen=True)
class LayerRows:
    """The vectors of all occurrences in a linear mix of layers.

    Args:
        layers: the rows of each layer.
        weights: the weight of each layer; layers with the weight 0 are not read.
        norms: the norm of each mixed row.
    """

    layers: Sequence[Rows]
    weights: Sequence[float]
    norms: Floats

    def __len__(self) -> int:
        return len(self.norms)


def nearest_rows(rows: LayerRows, query: Floats, count: int) -> list[Match]:
    """Return the `count` rows with the largest cosines, largest first; equal ones by number.

    `query` (dim,) is a vector of the same mix. The cosine is 0 where a vector is zero.
    """
    import numpy as np

    heap: list[tuple[float, int]] = []  # (cosine, -row), the worst one first
    for start, cosines in cosine_blocks(rows, query):
        kept = min(count, len(cosines))
        threshold = np.partition(cosines, -kept)[-kept] if kept else np.inf
        if len(heap) == count:
            threshold = max(threshold, heap[0][0])
        for place in np.flatnonzero(cosines >= threshold).tolist():
            item = (float(cosines[place]), -(start + place))
            if len(heap) < count:
                heapq.heappush(heap, item)
            elif item > heap[0]:
                heapq.heapreplace(heap, item)
    return [Match(-row, cosine) for cosine, row in sorted(heap, reverse=True)]


def cosine_blocks(rows: LayerRows, query: Floats) -> Iterator[tuple[int, Floats]]:
    """Yield the number of the first row of each block, and the cosines of the block."""
    import numpy as np

    unit = query / max(float(np.linalg.norm(query)), _MIN_NORM)
    for start in range(0, len(rows), BLOCK_ROWS):
        block = slice(start, min(start + BLOCK_ROWS, len(rows)))
        sums: Floats = np.zeros(block.stop - start, np.float32)
        for layer, weight in zip(rows.layers, rows.weights, strict=True):
            if weight != 0:
                sums += _products(layer[block], unit * np.float32(weight))
        sums /= np.maximum(rows.norms[block], np.float32(_MIN_NORM))
        yield start, sums


def _products(block: npt.NDArray[Any], vector: Floats) -> Floats:
    """Return the product of a block in any precision with a vector; torch converts faster."""
    import torch

    matrix = torch.from_numpy(block).to(torch.float32)
    products: Floats = (matrix @ torch.from_numpy(vector.astype("float32"))).numpy()
    return products


def norms_of(vectors: Floats) -> Floats:
    """Return the norm of each row."""
    import numpy as np

    norms: Floats = np.linalg.norm(vectors, axis=1).astype(np.float32)
    return norms
