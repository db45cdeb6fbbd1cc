"""Files and directories that are either whole or absent.

Everything is written beside its destination under a temporary name, synced to disk, and renamed
into place, so that a process killed at any moment leaves nothing that looks finished.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from bilm.errors import BilmError

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def sync_directory(directory: Path) -> None:
    """Make the names inside `directory` durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(directory: Path) -> None:
    """Make every file and name below `directory` durable."""
    for parent, _, names in os.walk(directory):
        for name in names:
            descriptor = os.open(os.path.join(parent, name), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_directory(Path(parent))


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path; on success it becomes `path`, on failure it is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        os.chmod(temporary, 0o666 & ~_umask())
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` as UTF-8, atomically. The OSError of a full disk names `path`."""
    try:
        with atomic_file(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as e:
        if not is_disk_full(e):
            raise
        free, needed = shutil.disk_usage(path.parent).free, len(text.encode())
        why = f"{os.strerror(errno.ENOSPC)}: {needed:,} bytes needed, {free:,} bytes free"
        raise OSError(errno.ENOSPC, why, str(path)) from None


@contextmanager
def atomic_directory(
    path: Path, error: type[BilmError], overwrite: bool = False, needed: int = 0
) -> Iterator[Path]:
    """Yield a temporary directory; on success it becomes `path`, on failure it is removed.

    An existing `path` is refused unless `overwrite`; then it stays in place until the new one is
    whole. A full disk is reported as `error`, with the bytes needed (`needed`, if that is known
    beforehand; then it is seen before anything is written) and free.
    """
    if path.exists() and not overwrite:
        raise error(f"{path} exists already; choose another place, or ask to overwrite it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as e:
        raise error(f"cannot create {path}: {e.strerror}") from None
    try:
        if needed > shutil.disk_usage(temporary).free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        yield temporary
        os.chmod(temporary, 0o777 & ~_umask())
        for file in temporary.iterdir():  # some libraries write files for their owner alone
            os.chmod(file, 0o666 & ~_umask())
        sync_tree(temporary)
        _replace_directory(temporary, path)
        sync_directory(path.parent)
    except OSError as e:
        if not is_disk_full(e):
            raise
        written = sum(f.stat().st_size for f in temporary.rglob("*") if f.is_file())
        shutil.rmtree(temporary, ignore_errors=True)
        raise error(disk_full_message(path, max(needed, written))) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def is_disk_full(error: OSError) -> bool:
    """Whether the disk, a quota or a limit of the shell is what was met."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def disk_full_message(path: Path, needed: int) -> str:
    """What to say when `path` could not be written; to be asked when temporary files are gone."""
    free = shutil.disk_usage(path.parent).free
    return (
        f"no space left while writing {path}: at least {needed:,} bytes needed, {free:,} bytes "
        "free; nothing was kept, and whatever stood there before is untouched"
    )


def _replace_directory(temporary: Path, path: Path) -> None:
    """Put `temporary` in the place of `path`; what stood there is then in `temporary`'s."""
    if not path.exists():
        os.rename(temporary, path)
    elif not _exchange(temporary, path):
        # A kill between these two leaves the old one under its hidden name, whole.
        retired = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=path.parent))
        os.rename(path, retired / path.name)
        os.rename(temporary, path)
        shutil.rmtree(retired)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two names in one stroke, if the system can (Linux's renameat2)."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    here = ctypes.c_int(_AT_FDCWD)
    names = os.fsencode(first), os.fsencode(second)
    return bool(renameat2(here, names[0], here, names[1], ctypes.c_uint(_RENAME_EXCHANGE)) == 0)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def open_lock(path: Path) -> TextIO:
    """Open a lock file, making it if need be; an OSError if a link or a directory stands there."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o666), "r")
