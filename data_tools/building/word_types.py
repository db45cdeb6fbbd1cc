"""The word types of a part on disk, sorted, so that a range of them can be read.

types.txt     the types in the order of their UTF-8 bytes, one per line
starts.bin    int64, the position of each line, and the end of the last
counts.bin    int64, the count of each type in the training split
places.bin    int32, the line of each type by its id
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from data_tools.building.spool import Int32

Int64 = npt.NDArray[np.int64]

# The first word of a range, and the word after its last one (None: the range has no end).
Bounds = tuple[bytes, bytes | None]

TYPES_FILE, STARTS_FILE, COUNTS_FILE = "types.txt", "starts.bin", "counts.bin"

PLACES_FILE = "places.bin"


def write_types(directory: Path, types: Sequence[bytes], counts: Int64) -> Int32:
    """Write types and their counts, both by id, and return the place of each id."""
    order = np.array(sorted(range(len(types)), key=types.__getitem__), dtype=np.int64)
    text = b"".join([types[i] + b"\n" for i in order.tolist()])
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")) + 1
    places = np.empty(len(types), dtype=np.int32)
    places[order] = np.arange(len(types), dtype=np.int32)
    (directory / TYPES_FILE).write_bytes(text)
    (directory / STARTS_FILE).write_bytes(np.concatenate([[0], ends]).astype(np.int64).tobytes())
    (directory / COUNTS_FILE).write_bytes(counts[order].tobytes())
    return places


def read_types(directory: Path, bounds: Bounds) -> tuple[list[bytes], Int64]:
    """Return the types of a part in a range, and their counts."""
    text = (directory / TYPES_FILE).read_bytes()
    starts = np.fromfile(directory / STARTS_FILE, np.int64)
    numbers = range(len(starts) - 1)

    def type_at(number: int) -> bytes:
        return text[starts[number] : starts[number + 1] - 1]

    first, end = (
        len(numbers) if word is None else bisect_left(numbers, word, key=type_at) for word in bounds
    )
    types = text[starts[first] : starts[end]].split(b"\n")[:-1]
    counts = np.fromfile(directory / COUNTS_FILE, np.int64, end - first, offset=8 * first)
    return types, counts


class TypeCounter:
    """Word types in the order of their first occurrence, with their training counts."""

    def __init__(self) -> None:
        self._ids: defaultdict[bytes, int] = defaultdict(itertools.count().__next__)
        self._counts = np.zeros(1 << 16, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def types(self) -> list[bytes]:
        """The types in order."""
        return list(self._ids)

    @property
    def counts(self) -> Int64:
        """The counts of the types in the training text."""
        return self._counts[: len(self._ids)]

    def add(self, types: list[bytes], counts: Int64) -> Int32:
        """Add counts of types, and return the positions of the types in this counter."""
        ids = self._ids
        positions = np.fromiter(map(ids.__getitem__, types), np.int32, len(types))
        if len(ids) > len(self._counts):
            grown = np.zeros(2 * len(ids), dtype=np.int64)
            grown[: len(self._counts)] = self._counts
            self._counts = grown
        self._counts[positions] += counts
        return positions
