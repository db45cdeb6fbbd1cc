"""The HDF5 file that parts are joined into, in a temporary file until it is complete."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import h5py

from bilm.embedding.part_files import PartFile
from bilm.embedding.vector_file import VectorFileWriter
from bilm.files.writing import atomic_file

MAX_DATASET_OVERHEAD_BYTES = 1024  # of HDF5, per dataset

_MARGIN_BYTES = 1 << 20


class JoinedFile:
    """Adds parts in their order; `finish` completes the file at `path`, and `discard` removes it.

    Each part is on disk before the next one is added, so that the space for it can be checked.
    """

    def __init__(self, path: Path, run: dict[str, Any], compression: str | None) -> None:
        self.num_parts = 0
        with ExitStack() as stack:
            self._path = stack.enter_context(atomic_file(path))
            self._file = stack.enter_context(h5py.File(self._path, "w"))
            self._writer = VectorFileWriter(self._file, run, compression)
            self._files = stack.pop_all()

    def add(self, part: PartFile) -> None:
        """Add the lines of the next part."""
        lines = list(part.contents())
        size = part.path.stat().st_size + MAX_DATASET_OVERHEAD_BYTES * len(lines)
        self._check_space(size)
        for array, line in lines:
            self._writer.add(array, line)
        self._file.flush()
        self.num_parts += 1

    def finish(self) -> None:
        """Complete the file."""
        self._check_space(2 * self._writer.index_bytes)
        with self._files:
            self._writer.finish()

    def discard(self) -> None:
        """Remove the incomplete file."""
        with suppress(_DiscardedError, OSError), self._files:
            raise _DiscardedError

    def _check_space(self, size: int) -> None:
        """Raise `OSError` without space for `size` more bytes, since HDF5 would abort."""
        directory, size = self._path.parent, size + _MARGIN_BYTES
        if not hasattr(os, "posix_fallocate"):  # macOS
            if shutil.disk_usage(directory).free < size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
            return
        with tempfile.TemporaryFile(dir=directory) as file:
            # A limit on file sizes includes what the file already contains.
            os.posix_fallocate(file.fileno(), self._path.stat().st_size, size)


class _DiscardedError(Exception):
    pass
