"""Choose the held-out lines by a seeded hash."""

from __future__ import annotations

import hashlib


class HeldoutChoice:
    """Selects a share of all lines: those whose seeded hash is below a limit.

    The choice depends only on the line itself: it does not change when text is added, and two
    occurrences of a line are never in different splits.
    """

    def __init__(self, share: float, seed: int) -> None:
        self._limit = int(share * 2**64)
        self._key = seed.to_bytes(8, "little")

    def __call__(self, line: str) -> bool:
        """Return whether `line` is held out."""
        if not self._limit:
            return False
        return self.hash(line) < self._limit

    def hash(self, line: str) -> int:
        """Return a number below 2**64, uniformly distributed over lines."""
        data = line.strip().encode("utf-8")
        digest = hashlib.blake2b(data, digest_size=8, key=self._key).digest()
        return int.from_bytes(digest, "little")
