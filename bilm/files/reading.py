"""Open and read untrusted files: only regular files, whose size is checked first.

A pipe could block its reader forever, and a device may be endless, so both are rejected. This
module does not import numpy, so that commands can reject an invalid configuration quickly.
"""

from __future__ import annotations

import hashlib
import os
import stat
from io import BufferedReader
from pathlib import Path

from bilm.errors import BilmError


def open_regular(path: Path, error: type[BilmError], what: str = "") -> BufferedReader:
    """Open the regular file at `path` for reading; raise `error` for anything else.

    `what` precedes the path in error messages, for example "the vocabulary".
    """
    name = f"{what} {path}" if what else str(path)
    try:
        # Without O_NONBLOCK, opening a pipe would wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as e:
        raise error(f"cannot read {name}: {e.strerror}") from None
    except ValueError:
        raise error(f"cannot read {name!r}: a path cannot contain a NUL character") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise error(f"cannot read {name}: it is not a regular file")
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, error: type[BilmError], max_bytes: int, what: str = "") -> bytes:
    """Return the content of the regular file at `path`, which may have at most `max_bytes`."""
    with open_regular(path, error, what) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise error(f"{path} has {size:,} bytes; the limit is {max_bytes:,}")
        try:
            return file.read(max_bytes)
        except OSError as e:
            raise error(f"cannot read {path}: {e.strerror}") from None


def sha256_of(path: Path, error: type[BilmError], what: str = "") -> str:
    """Return the sha256 of the regular file at `path`."""
    with open_regular(path, error, what) as file:
        try:
            return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as e:
            raise error(f"cannot read {path}: {e.strerror}") from None
