"""Files read by memory map, as one should read files from somewhere else.

Only regular files of the expected size are mapped, never a symbolic link, a device or a pipe, and
an `.npy` file is believed only when its header says the very dtype and length that are expected.

Cost: a mapping takes address space, not memory; what is touched is read from disk once.
"""

from __future__ import annotations

import hashlib
import io
import mmap
import os
import re
import stat
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bilm.errors import CorpusError

Bytes = npt.NDArray[np.uint8]

Stamp = tuple[int, int, int, int]

_HASH_STEP = 1 << 24

_MAX_NPY_HEADER = 4096

# numpy's own parser evaluates the header as Python and stumbles in many ways over a damaged one.
_NPY_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00(?P<size>..)"
    rb"\{'descr': '(?P<dtype>[<>|][a-zA-Z]\d*)', 'fortran_order': False, "
    rb"'shape': \((?P<length>\d{1,18}),\), \} *\n",
    re.DOTALL,
)


def map_file(path: Path, num_bytes: int) -> Bytes:
    """Map the regular file `path`, which must have exactly `num_bytes` bytes, for reading."""
    try:
        # O_NONBLOCK: a pipe in the place of the file must be refused, not waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise CorpusError(f"{path} is missing; copy the corpus again, or build it anew") from None
    except OSError as e:
        if path.is_symlink():
            raise CorpusError(
                f"{path} is a symbolic link; a corpus holds regular files only: copy the file here"
            ) from None
        raise CorpusError(f"cannot read {path}: {e.strerror}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise CorpusError(f"{path} is not a regular file; a corpus holds regular files only")
        if status.st_size != num_bytes:
            raise CorpusError(
                f"{path} has {status.st_size:,} bytes, but corpus.json says {num_bytes:,}; "
                "the file was cut or changed: copy the corpus again, or build it anew"
            )
        if num_bytes == 0:
            return np.empty(0, dtype=np.uint8)
        mapped = mmap.mmap(descriptor, num_bytes, access=mmap.ACCESS_READ)
        return np.frombuffer(mapped, dtype=np.uint8)
    finally:
        os.close(descriptor)


def stamp(path: Path) -> Stamp | None:
    """What changes when a file is written to or replaced; None if there is none."""
    try:
        status = path.stat(follow_symlinks=False)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def sha256(data: Bytes) -> str:
    """The sha256 of mapped bytes, in steps, so that other threads get their turn."""
    digest = hashlib.sha256()
    for start in range(0, len(data), _HASH_STEP):
        digest.update(data[start : start + _HASH_STEP].data)
    return digest.hexdigest()


def npy_bytes(array: npt.NDArray[Any]) -> bytes:
    """`array` as the content of an `.npy` file."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version=(1, 0), allow_pickle=False)
    return buffer.getvalue()


def npy_array(data: Bytes, dtype: str, length: int, path: Path) -> npt.NDArray[Any]:
    """The one-dimensional array in the mapped `.npy` file `path`, without copying it."""
    header = _NPY_HEADER.match(data[:_MAX_NPY_HEADER].tobytes())
    if header is None or int.from_bytes(header["size"], "little") != header.end() - 10:
        raise CorpusError(f"{path} is not an .npy file of one dimension: build the corpus anew")
    found, start = f"{header['dtype'].decode()} ({header['length'].decode()},)", header.end()
    if found != f"{dtype} ({length},)":
        raise CorpusError(
            f"{path} holds {found}; {dtype} ({length},) is expected: build the corpus anew"
        )
    if len(data) != start + length * np.dtype(dtype).itemsize:
        raise CorpusError(
            f"{path} has {len(data):,} bytes, which its header contradicts: build the corpus anew"
        )
    return data[start:].view(dtype)


Ids = npt.NDArray[np.int32]
