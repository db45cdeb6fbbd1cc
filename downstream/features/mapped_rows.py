"""Rows of numbers in a memory-mapped file, with a bound on the resident memory."""

from __future__ import annotations

import math
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bilm.errors import CheckpointError
from bilm.files.reading import open_regular

# The system maps neighboring pages too, so several times this may be resident.
_RESIDENT_BYTES = 1 << 27


class MappedRows:
    """Rows of a memory-mapped file; pages are released after every 128 MiB that are read."""

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.shape = shape
        num_bytes = dtype.itemsize * math.prod(shape)
        with open_regular(path, CheckpointError) as file:
            if num_bytes == 0 or os.fstat(file.fileno()).st_size != num_bytes:
                raise CheckpointError(f"{path} must have {num_bytes:,} bytes, for rows {shape}")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._rows = np.frombuffer(self._map, dtype=dtype).reshape(shape)
        self._resident = 0

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: slice | npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Return a copy of the rows of a slice, or at an array of indices."""
        rows = self._rows[index].copy() if isinstance(index, slice) else self._rows[index]
        self._count(rows.nbytes)
        return rows

    def _count(self, num_bytes: int) -> None:
        self._resident += num_bytes
        if self._resident > _RESIDENT_BYTES:
            # The pages stay in the system's page cache.
            self._map.madvise(mmap.MADV_DONTNEED)
            self._resident = 0
