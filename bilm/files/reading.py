"""Open and read files from untrusted places: regular files only, of a size that is checked first.

A pipe would block its reader forever, and a device has no end, so neither is opened. Imports no
numpy, so that commands can reject a bad configuration quickly.
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

    `what` precedes the path in error messages, such as "the vocabulary".
    """
    named = f"{what} {path}" if what else str(path)
    try:
        # O_NONBLOCK, because opening a pipe would otherwise wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as e:
        raise error(f"cannot read {named}: {e.strerror}") from None
    except ValueError:
        raise error(f"cannot read {named!r}: a path cannot contain a NUL") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise error(f"cannot read {named}: it is not a regular file")
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, error: type[BilmError], max_bytes: int, what: str = "") -> bytes:
    """Return the content of the regular file at `path`, which may have at most `max_bytes`."""
    with open_regular(path, error, what) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise error(f"{path} has {size:,} bytes; at most {max_bytes:,} are read")
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
