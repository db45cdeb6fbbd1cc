"""Write files and directories atomically: readers see the complete new content or none of it.

Everything is written next to its destination under a temporary name, synced to disk, and renamed
into place, so that a process killed at any moment leaves nothing that looks finished. Lock files
keep a second process from writing to the same place.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bilm.errors import BilmError

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def sync_directory(directory: Path) -> None:
    """Sync the entries of `directory` to disk, but not the content of its files."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(directory: Path) -> None:
    """Sync all files and directories below `directory` to disk."""
    for parent, _, names in os.walk(directory):
        for name in names:
            descriptor = os.open(os.path.join(parent, name), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_directory(Path(parent))


def cache_directory() -> Path:
    """Return the user's directory for files that can be made again at any time."""
    chosen = os.environ.get("BILM_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "bilm"


def free_bytes(path: Path) -> int:
    """Return the free space of the disk of `path`, which need not exist yet."""
    existing = next(p for p in (path, *path.absolute().parents) if p.exists())
    return shutil.disk_usage(existing).free


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path; on success it becomes `path`, on failure it is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary_name(path)
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    mode = os.fstat(descriptor).st_mode & 0o777
    os.close(descriptor)
    try:
        yield temporary
        os.chmod(temporary, mode)  # the writer may have replaced the file
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` as UTF-8, atomically; on a full disk the OSError names `path`."""
    try:
        with atomic_file(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as e:
        if not is_disk_full(e):
            raise
        free, needed = shutil.disk_usage(path.parent).free, len(text.encode())
        reason = f"{os.strerror(errno.ENOSPC)}: {needed:,} bytes needed, {free:,} bytes free"
        raise OSError(errno.ENOSPC, reason, str(path)) from None


@contextmanager
def atomic_directory(
    path: Path, error: type[BilmError], overwrite: bool = False, needed: int = 0
) -> Iterator[Path]:
    """Yield a temporary directory; on success it becomes `path`, on failure it is removed.

    An existing `path` is rejected unless `overwrite` is set; in that case it stays in place until
    the new directory is complete. A full disk raises `error` with the number of bytes needed and
    free; if `needed` is given, the free space is checked before anything is written.
    """
    reject_existing(path, error, overwrite)
    temporary = _temporary_name(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
    except OSError as e:
        raise error(f"cannot create {path}: {e.strerror}") from None
    try:
        if needed > shutil.disk_usage(temporary).free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        yield temporary
        mode = temporary.stat().st_mode & 0o666  # 0o666 minus the umask
        for file in temporary.iterdir():  # some libraries create files only their owner can read
            os.chmod(file, mode)
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


def reject_existing(path: Path, error: type[BilmError], overwrite: bool = False) -> None:
    """Raise `error` if `path` exists, unless `overwrite` is set."""
    if path.exists() and not overwrite:
        raise error(f"{path} already exists; choose another path, or use --overwrite")


def is_disk_full(error: OSError) -> bool:
    """Whether a write failed because of a full disk, a quota or a limit on file sizes."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def disk_full_message(path: Path, needed: int) -> str:
    """Return the error message for a full disk; call it after removing temporary files."""
    free = shutil.disk_usage(path.parent).free
    return (
        f"no space left while writing {path}: at least {needed:,} bytes needed, {free:,} bytes "
        "free; nothing was written, and an existing output is unchanged"
    )


def _temporary_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}")


def _replace_directory(temporary: Path, path: Path) -> None:
    """Move `temporary` to `path`; if `path` existed, it is removed or left at `temporary`."""
    if not path.exists():
        os.rename(temporary, path)
    elif not _exchange(temporary, path):
        # If killed between the two renames, the old directory remains under a hidden name.
        retired = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=path.parent))
        os.rename(path, retired / path.name)
        os.rename(temporary, path)
        shutil.rmtree(retired)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two names atomically by Linux's renameat2; return False if that is not possible."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    here = ctypes.c_int(_AT_FDCWD)
    names = os.fsencode(first), os.fsencode(second)
    return bool(renameat2(here, names[0], here, names[1], ctypes.c_uint(_RENAME_EXCHANGE)) == 0)


@contextmanager
def exclusive_lock(path: Path, error: type[BilmError], message: str) -> Iterator[None]:
    """Lock the file `path`, creating it if needed; raise `error(message)` if it is locked.

    Raise OSError if the file cannot be created, is a directory, or is a symbolic link (through
    which a file could be created elsewhere).
    """
    with _locked(path, fcntl.LOCK_EX, error, message):
        yield


@contextmanager
def shared_lock(path: Path, error: type[BilmError], message: str) -> Iterator[None]:
    """Lock the file `path` like `exclusive_lock`, together with other shared locks."""
    with _locked(path, fcntl.LOCK_SH, error, message):
        yield


@contextmanager
def _locked(path: Path, kind: int, error: type[BilmError], message: str) -> Iterator[None]:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o666)
    try:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            raise error(message) from None
        yield
    finally:
        os.close(descriptor)
