"""downstream/features/mapped_rows."""

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

# Mapping a page brings its neighbours along, so several times this may be resident.
_RESIDENT_BYTES = 1 << 27


class MappedRows:
    """Rows of a memory-mapped file; what has been read is let go after every 128 MiB."""

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.shape = shape
        num_bytes = dtype.itemsize * math.prod(shape)
        with open_regular(path, CheckpointError) as file:
            if num_bytes == 0 or os.fstat(file.fileno()).st_size != num_bytes:
                raise CheckpointError(f"{path} must have {num_bytes:,} bytes, for rows {shape}")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._rows = np.frombuffer(self._map, dtype=dtype).reshape(shape)
        self._row_bytes = dtype.itemsize * int(np.prod(shape[1:]))
        self._resident = 0

    def slice(self, start: int, end: int) -> npt.NDArray[Any]:
        """A copy of the rows from `start` to `end`."""
        self._count(end - start)
        return self._rows[start:end].copy()

    def take(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """A copy of the rows at `indices`."""
        self._count(len(indices))
        return self._rows[indices]

    def _count(self, num_rows: int) -> None:
        self._resident += num_rows * self._row_bytes
        if self._resident > _RESIDENT_BYTES:
            # The pages stay in the system's cache; only our share of memory is given back.
            self._map.madvise(mmap.MADV_DONTNEED)
            self._resident = 0
