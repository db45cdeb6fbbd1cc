"""The size of stores of representations, and the check of the free space before they are written.

At the published size (3 layers of 1,024 numbers), 120,000 texts of 45 words take 33 GB for the
words and 3 GB for the pooled layers.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bilm.errors import OutputError
from bilm.files.writing import free_bytes
from downstream.features.store_format import DTYPES, Kind

logger = logging.getLogger(__name__)

_BYTES_PER_WORD, _BYTES_PER_OFFSET = 4, 8


@dataclass(frozen=True)
class StoreSize:
    """The numbers that determine the size of a store."""

    num_texts: int
    num_words: int
    num_layers: int
    dim: int

    def layers_shape(self, kind: Kind) -> tuple[int, ...]:
        """Return the shape of the file of layers."""
        rows = (self.num_texts, 2) if kind == "pooled" else (self.num_words,)
        return (*rows, self.num_layers, self.dim)

    def num_bytes(self, kind: Kind) -> int:
        """Return the size on disk, without the list of word types."""
        layers = math.prod(self.layers_shape(kind)) * DTYPES[kind].itemsize
        offsets = _BYTES_PER_OFFSET * (self.num_texts + 1)
        return layers + offsets + _BYTES_PER_WORD * self.num_words


def check_space(cache: Path, sizes: Sequence[tuple[StoreSize, Iterable[Kind]]]) -> None:
    """Log the size of the stores to write below `cache`; raise OutputError if it is too large."""
    if not sizes:
        return
    needed: dict[Kind, int] = {}
    for size, kinds in sizes:
        for kind in kinds:
            needed[kind] = needed.get(kind, 0) + size.num_bytes(kind)
    parts = ", ".join(f"{kind} {_gigabytes(count)}" for kind, count in needed.items())
    total = sum(needed.values())
    free = free_bytes(cache)
    first = sizes[0][0]
    logger.info(
        "representations of %s texts with %s words in %d layers of %s numbers: %s (%s) in %s; %s "
        "free",
        f"{sum(size.num_texts for size, _ in sizes):,}",
        f"{sum(size.num_words for size, _ in sizes):,}",
        first.num_layers,
        f"{first.dim:,}",
        _gigabytes(total),
        parts,
        cache,
        _gigabytes(free),
    )
    if total <= free:
        return
    pooled = sum(size.num_bytes("pooled") for size, _ in sizes)
    smaller = (
        f", use a pooled head (--head mean_max), which needs {_gigabytes(pooled)}, or reduce "
        "--max-words"
        if "words" in needed
        else ", or use fewer texts"
    )
    raise OutputError(
        f"the representations need {total:,} bytes ({parts}) in {cache}, but {free:,} bytes are "
        f"free; nothing was written. Set --cache to a directory on a larger disk{smaller}"
    )


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:,.2f} GB"
