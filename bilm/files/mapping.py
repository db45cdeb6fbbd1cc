"""Memory-map files, with the checks that untrusted files require.

Only regular files of the expected size are mapped, and an `.npy` file is accepted only if its
header has the expected dtype and length.

Cost: a mapping takes address space, not memory; its pages are read from disk on first access.
"""

from __future__ import annotations

import hashlib
import io
import mmap
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bilm.errors import BilmError, CorpusError

Bytes = npt.NDArray[np.uint8]

Ids = npt.NDArray[np.int32]

_HASH_STEP_BYTES = 1 << 24

_MAX_NPY_HEADER_BYTES = 4096

# NumPy's parser evaluates the header as Python and raises many exception types on a damaged one.
_NPY_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00(?P<size>..)"
    rb"\{'descr': '(?P<dtype>[<>|][a-zA-Z]\d*)', 'fortran_order': False, "
    rb"'shape': \((?P<length>\d{1,18}),\), \} *\n",
    re.DOTALL,
)


class Stamp(NamedTuple):
    """The fields of a file's status that change when it is written or replaced."""

    device: int
    inode: int
    bytes: int
    modified_ns: int
    changed_ns: int  # of the content or the status; programs cannot set it


def map_file(path: Path, num_bytes: int, error: type[BilmError]) -> Bytes:
    """Map the regular file `path`, which must have exactly `num_bytes` bytes, for reading.

    Unlike `reading.open_regular`, this rejects symbolic links, which could point outside a
    directory that was copied from elsewhere.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise error(f"{path} is missing; copy or build its directory again") from None
    except OSError as e:
        if path.is_symlink():
            raise error(f"{path} is a symbolic link; replace it with the file itself") from None
        raise error(f"cannot read {path}: {e.strerror}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise error(f"{path} is not a regular file")
        if status.st_size != num_bytes:
            raise error(
                f"{path} has {status.st_size:,} bytes, but {num_bytes:,} are expected: it was "
                "truncated or changed; copy or build its directory again"
            )
        if num_bytes == 0:
            return np.empty(0, dtype=np.uint8)
        mapped = mmap.mmap(descriptor, num_bytes, access=mmap.ACCESS_READ)
        return np.frombuffer(mapped, dtype=np.uint8)
    finally:
        os.close(descriptor)


def stamp(path: Path) -> Stamp | None:
    """Return the stamp of the file at `path`, or None if there is no file."""
    try:
        status = path.stat(follow_symlinks=False)
    except OSError:
        return None
    return Stamp(
        status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    )


def sha256(data: Bytes, progress: Callable[[int], object] | None = None) -> str:
    """Return the sha256 of mapped bytes, hashed in chunks while other threads run.

    `progress` is called after each chunk with its number of bytes.
    """
    digest = hashlib.sha256()
    for start in range(0, len(data), _HASH_STEP_BYTES):
        chunk = data[start : start + _HASH_STEP_BYTES]
        digest.update(chunk.data)
        if progress is not None:
            progress(len(chunk))
    return digest.hexdigest()


def npy_bytes(array: npt.NDArray[Any]) -> bytes:
    """Return the content of an `.npy` file that contains `array`."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version=(1, 0), allow_pickle=False)
    return buffer.getvalue()


def npy_array(data: Bytes, dtype: str, length: int, path: Path) -> npt.NDArray[Any]:
    """Return the one-dimensional array in the mapped `.npy` file `path`, without copying it.

    Reject a header whose dtype or length differs from `dtype` and `length`.
    """
    header = _NPY_HEADER.match(data[:_MAX_NPY_HEADER_BYTES].tobytes())
    if header is None or int.from_bytes(header["size"], "little") != header.end() - 10:
        raise CorpusError(f"{path} is not a one-dimensional .npy file; build the corpus again")
    actual, start = f"{header['dtype'].decode()} ({header['length'].decode()},)", header.end()
    if actual != f"{dtype} ({length},)":
        raise CorpusError(
            f"{path} contains {actual}; expected {dtype} ({length},); build the corpus again"
        )
    if len(data) != start + length * np.dtype(dtype).itemsize:
        raise CorpusError(
            f"{path} has {len(data):,} bytes, which contradicts its header; build the corpus again"
        )
    return data[start:].view(dtype)
