"""data_tools/reading/heldout."""

from __future__ import annotations

import hashlib


class HeldoutChoice:
    """Which lines are held out: a seeded hash of the line, below the share.

    So the choice depends on nothing but the line: it stays when text is added, and a line that
    occurs twice is never on both sides.
    """

    def __init__(self, share: float, seed: int) -> None:
        self._limit = int(share * 2**64)
        self._key = seed.to_bytes(8, "little")

    def __call__(self, line: str) -> bool:
        if not self._limit:
            return False
        return self.hash(line) < self._limit

    def hash(self, line: str) -> int:
        """A number below 2**64, uniform over lines."""
        data = line.strip().encode("utf-8")
        digest = hashlib.blake2b(data, digest_size=8, key=self._key).digest()
        return int.from_bytes(digest, "little")
