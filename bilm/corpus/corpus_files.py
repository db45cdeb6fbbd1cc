"""The files of a corpus directory: memory maps, digests, and detection of changes.

Damage to a tar file is rarely visible in the file itself, so `corpus.json` lists the size and
sha256 of every file. A file is mapped only if its size is right, `verify` checks its sha256, and a
file that was changed after it was mapped is rejected.

Cost: verifying reads the files once (measured at 0.4 GB/s on one core); checking one file for
changes takes microseconds.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from bilm.corpus.manifest import MANIFEST_FILE, FileInfo, ShardInfo
from bilm.errors import CorpusError
from bilm.files.mapping import Bytes, Stamp, map_file, sha256, stamp

_CHECK_SECONDS = 1.0

_MAX_CHECK_SHARE = 0.01  # of the time, on a slow file system


class CorpusFiles:
    """The files of a corpus that `corpus.json` lists, by name; thread-safe."""

    def __init__(self, directory: Path, infos: Mapping[str, FileInfo | ShardInfo]) -> None:
        self._directory = directory
        self._infos = infos
        self._lock = threading.Lock()
        self._maps: dict[str, Bytes] = {}
        self._stamps: dict[str, Stamp | None] = {}  # of the files when they were mapped
        self._verified: set[str] = set()
        self._next_check = 0.0

    def __contains__(self, name: str) -> bool:
        return name in self._infos

    def __iter__(self) -> Iterator[str]:
        return iter(self._infos)

    def num_bytes(self, name: str) -> int:
        """Return the size of a file."""
        return self._infos[name].bytes

    def map(self, name: str) -> Bytes:
        """Return the content of a file, memory-mapped."""
        with self._lock:
            if name not in self._maps:
                self._stamps[name] = stamp(self._directory / name)
                self._maps[name] = map_file(
                    self._directory / name, self._infos[name].bytes, CorpusError
                )
            return self._maps[name]

    def verify(self, name: str, again: bool = False) -> None:
        """Check the sha256 of a file; skip a file that was verified before, unless `again`."""
        if name in self._verified and not again:
            return
        if sha256(self.map(name)) != self._infos[name].sha256:
            raise CorpusError(
                f"{self._directory / name} is damaged: its sha256 differs from the one in "
                f"{MANIFEST_FILE}; restore the file from a copy of the corpus, or rebuild the "
                "corpus"
            )
        self._verified.add(name)

    def check_unchanged(self) -> None:
        """Reject changes to any file; check at most once per second and 1 % of the time.

        Readers that cache data call this regularly: their cache stays correct, but
        a run whose corpus has changed could be neither reproduced nor resumed.
        """
        now = time.monotonic()
        if now < self._next_check:
            return
        self._next_check = math.inf  # only one thread checks at a time
        try:
            for name in self._infos:
                self.check_file_unchanged(name)
        finally:
            done = time.monotonic()
            self._next_check = done + max(_CHECK_SECONDS, (done - now) / _MAX_CHECK_SHARE)

    def check_file_unchanged(self, name: str) -> None:
        """Reject a file that has changed since it was mapped; accept a rewrite with equal content.

        This compares the device, inode, size and modification time.
        """
        self.map(name)
        if stamp(self._directory / name) == self._stamps[name]:
            return
        with self._lock:
            self._maps.pop(name, None)  # another thread may have noticed the change as well
        try:
            self.verify(name, again=True)
        except CorpusError as error:
            raise CorpusError(f"the corpus has changed since it was opened: {error}") from None
