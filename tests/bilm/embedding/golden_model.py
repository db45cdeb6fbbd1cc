"""The golden model and its sentences."""

from __future__ import annotations

from bilm.embedding.embedder import Embedder, Limits
from tests.conftest import GOLDEN

SENTENCES = [
    line.split() for line in (GOLDEN / "sentences.txt").read_text(encoding="utf-8").splitlines()
]


def golden_embedder(**limits: int) -> Embedder:
    """Return a new embedder with an empty table of encoded words."""
    return Embedder.from_published(
        GOLDEN / "options.json", GOLDEN / "weights.hdf5", limits=Limits(**limits)
    )
