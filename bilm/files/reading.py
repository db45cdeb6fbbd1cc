"""Opening files that somebody else may have put there.

A pipe would keep its reader waiting for ever, and a device has no end: only regular files are
opened, of a size that is known before anything is read. Lock files are never opened through a
symbolic link, which could make a file elsewhere.
"""

from __future__ import annotations

import hashlib
import os
import stat
from io import BufferedReader
from pathlib import Path

from bilm.errors import BilmError


def open_regular(path: Path, error: type[BilmError], what: str = "") -> BufferedReader:
    """Open the regular file at `path` for reading; anything else is refused unread.

    `what` is said before the path in errors, such as "the vocabulary".
    """
    named = f"{what} {path}" if what else str(path)
    try:
        # O_NONBLOCK: a pipe is to be refused, not waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as e:
        raise error(f"cannot read {named}: {e.strerror}") from None
    except ValueError:  # a NUL
        raise error(f"cannot read {named!r}: it is no path") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise error(f"cannot read {named}: it is not a regular file")
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path, error: type[BilmError], max_bytes: int, what: str = "") -> bytes:
    """The content of the regular file at `path`, of at most `max_bytes`."""
    with open_regular(path, error, what) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise error(f"{path} has {size:,} bytes; at most {max_bytes:,} are read")
        try:
            return file.read(max_bytes)
        except OSError as e:
            raise error(f"cannot read {path}: {e.strerror}") from None


def sha256_of(path: Path, error: type[BilmError], what: str = "") -> str:
    """The sha256 of the regular file at `path`."""
    with open_regular(path, error, what) as file:
        try:
            return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as e:
            raise error(f"cannot read {path}: {e.strerror}") from None
