"""The files of a corpus directory: memory maps, digests, and detection of changes.

Damage to a tar file is rarely visible in the file itself, so `corpus.json` lists the size and
sha256 of every file. A file is mapped only if its size is right, `verify` checks its sha256, and a
file that was changed after it was mapped is rejected.

Cost: verifying reads the files once; checking one file for changes takes microseconds.
"""

from __future__ import annotations

import functools
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bilm.corpus.manifest import MANIFEST_FILE, FileInfo, ShardInfo
from bilm.corpus.verified_files import VerificationRecord, can_be_recorded, entry_of
from bilm.errors import CorpusError
from bilm.files.mapping import Bytes, Stamp, map_file, sha256, stamp

_CHECK_SECONDS = 1.0

_MAX_CHECK_SHARE = 0.01  # of the time, on a slow file system


class CorpusFiles:
    """The files of a corpus that `corpus.json` lists, by name; thread-safe."""

    def __init__(
        self, directory: Path, infos: Mapping[str, FileInfo | ShardInfo], fingerprint: str
    ) -> None:
        self._directory = directory
        self._infos = infos
        self._record = VerificationRecord(directory, fingerprint, len(infos))
        self._lock = threading.Lock()
        self._maps: dict[str, Bytes] = {}
        self._stamps: dict[str, Stamp | None] = {}  # of the files when they were mapped
        self._verified: set[str] = set()
        self._hashed: dict[str, Stamp | None] = {}  # the stamps to record, None if not possible
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

    def is_verified(self, name: str) -> bool:
        """Whether a file was verified by this process, or before and has not changed since."""
        if name not in self._verified:
            self.map(name)  # opening the file makes a network file system look up its status
            mapped = self._stamps[name]
            if mapped is None or mapped != stamp(self._directory / name):
                return False
            if self._recorded.get(name) != entry_of(mapped):
                return False
            self._verified.add(name)
        return True

    @functools.cached_property
    def _recorded(self) -> dict[str, Any]:
        return self._record.read()

    def write_record(self) -> None:
        """Record the files that this process has hashed, for `is_verified` of later ones."""
        self._record.update(dict(self._hashed))

    def verify_all(
        self,
        names: Iterable[str],
        num_threads: int = 1,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        """Check the sha256 of files, in several threads, also of those verified before.

        `progress` is called from these threads with the number of bytes hashed since the last call.
        """
        check = functools.partial(self.verify, again=True, progress=progress)
        with ThreadPoolExecutor(num_threads) as pool:
            # A large file that is hashed last would leave the other threads idle.
            for _ in pool.map(check, sorted(names, key=self.num_bytes, reverse=True)):
                pass

    def verify(
        self, name: str, again: bool = False, progress: Callable[[int], object] | None = None
    ) -> None:
        """Check the sha256 of a file; skip a file that was verified before, unless `again`."""
        if not again and self.is_verified(name):
            return
        self._verified.discard(name)
        self._hashed[name] = None
        data, mapped, begun_ns = self.map(name), self._stamps[name], time.time_ns()
        if sha256(data, progress) != self._infos[name].sha256:
            raise CorpusError(
                f"{self._directory / name} is damaged: its sha256 differs from the one in "
                f"{MANIFEST_FILE}; restore the file from a copy of the corpus, or rebuild the "
                "corpus"
            )
        self._verified.add(name)
        if can_be_recorded(mapped, stamp(self._directory / name), begun_ns):
            self._hashed[name] = mapped

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

        This compares the device, inode, size and modification time. The change time would also
        reveal a write that restores the modification time, but some network file systems change it
        without a reason.
        """
        self.map(name)
        now, mapped = stamp(self._directory / name), self._stamps[name]
        if now is not None and mapped is not None and now[:4] == mapped[:4]:
            return
        with self._lock:
            self._maps.pop(name, None)  # another thread may have noticed the change as well
        try:
            self.verify(name, again=True)
        except CorpusError as error:
            raise CorpusError(f"the corpus has changed since it was opened: {error}") from None
