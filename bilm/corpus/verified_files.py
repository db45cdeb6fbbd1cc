"""The record of verified files, so that a file that has not changed is hashed only once.

A record lists the inode, size, modification time and change time of each file that had the digest
in `corpus.json`. It is `.verified.json` in the corpus or, if that directory cannot be written, a
file in the user's cache directory; if there are two records, the newer one applies. A record is a
cache: it applies only to the corpus with its fingerprint, one that is damaged or cannot be read is
ignored, and every write replaces it as a whole, so that several ranks may write it at the same
time. A process changes only the entries of files that it has hashed itself.

The system sets the change time at every write, and programs cannot set it. A change that the system
does not know of, such as a failing disk, is detected only by a full verification.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bilm.errors import CorpusError
from bilm.files.mapping import Stamp, stamp
from bilm.files.strict_json import read_json
from bilm.files.writing import cache_directory, write_text

logger = logging.getLogger(__name__)

RECORD_FILE = ".verified.json"

_VERSION = 1

# The longest possible record: its fields, and one entry per file.
_MAX_BYTES, _MAX_FILE_BYTES = 4096, 256

# The times of a file are multiples of this on the coarsest file systems: two writes within it can
# leave the same stamp.
_TIME_STEP_NS = 2_000_000_000


def can_be_recorded(before: Stamp | None, after: Stamp | None, hashed_ns: int) -> bool:
    """Whether any later change of a file changes its stamp.

    `before` and `after` are its stamps before and after it was hashed, which began at `hashed_ns`.
    """
    if before is None or before != after or before.changed_ns <= 0:
        return False  # some network file systems report 0 because they have no change time
    return max(before.modified_ns, before.changed_ns) + _TIME_STEP_NS <= hashed_ns


@dataclass(frozen=True)
class VerificationRecord:
    """The place of the record of one corpus."""

    directory: Path
    fingerprint: str
    num_files: int

    def read(self) -> dict[str, Any]:
        """Return the entry of each verified file, to be compared with `entry_of`."""
        for path in sorted(self._paths(), key=_modified_ns, reverse=True):
            files = self._read(path)
            if files is not None:
                return files
        return {}

    def update(self, hashed: Mapping[str, Stamp | None]) -> None:
        """Replace the entries of the files that this process has hashed, and keep all others.

        Each file is given with the stamp to record, or None if its entry must be removed.
        """
        before = self.read()
        files = {name: entry for name, entry in before.items() if name not in hashed}
        for name, verified in hashed.items():
            if verified is not None and _is_synced(self.directory / name):
                files[name] = entry_of(verified)
        if files != before:
            tree = {"version": _VERSION, "fingerprint": self.fingerprint, "files": files}
            self._write(json.dumps(tree))
        after = self.read()
        for name in hashed.keys() - files.keys():
            now = stamp(self.directory / name)
            if now is not None and after.get(name) == entry_of(now):
                logger.warning(
                    "%s may be damaged, but its record of an earlier verification cannot be "
                    "removed; delete %s, or use --verify at every start",
                    self.directory / name,
                    " and ".join(map(str, self._paths())),
                )

    def _write(self, text: str) -> None:
        """Write the first record that can be written, and remove the others."""
        paths = self._paths()
        while paths:
            try:
                write_text(paths[0], text)
                break
            except OSError as error:
                logger.debug("cannot write %s: %s", paths[0], error)
                del paths[0]
        for path in paths[1:]:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def _read(self, path: Path) -> dict[str, Any] | None:
        """Return the files of a record, or None if it is missing, damaged or of another corpus."""
        try:
            tree = read_json(path, CorpusError, _MAX_BYTES + self.num_files * _MAX_FILE_BYTES)
        except (CorpusError, OSError):
            return None
        if not isinstance(tree, dict) or not isinstance(tree.get("files"), dict):
            return None
        identity = tree.get("version"), tree.get("fingerprint")
        return tree["files"] if identity == (_VERSION, self.fingerprint) else None

    def _paths(self) -> list[Path]:
        """Return the paths of the record, in the corpus and in the cache directory.

        Machines may share the cache directory, but not the corpus.
        """
        path = self.directory / RECORD_FILE
        try:
            parts = platform.node(), str(self.directory.resolve()), self.fingerprint
            name = hashlib.sha256("\0".join(parts).encode(errors="replace")).hexdigest()
            return [path, cache_directory() / f"verified-{name[:16]}.json"]
        except (OSError, RuntimeError):  # there is no home directory, or a loop of links
            return [path]


def entry_of(stamp: Stamp) -> list[int]:
    """Return the entry of a file; the device is left out because it can change at a restart."""
    return [stamp.inode, stamp.bytes, stamp.modified_ns, stamp.changed_ns]


def _modified_ns(path: Path) -> int:
    found = stamp(path)
    return 0 if found is None else found.modified_ns


def _is_synced(path: Path) -> bool:
    """Sync a file to disk; return whether it is there.

    If a file was verified in memory only, a power failure could leave other content with the same
    stamp on disk.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.fsync(descriptor)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
