"""Small models, texts and services for the tests of the explorer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bilm.embedding.embedder import Embedder, Limits
from bilm.pretrained.model_directory import PretrainedBiLm
from downstream.classifier import TextClassifier
from downstream.explorer.index import OccurrenceIndex
from downstream.explorer.index_text import open_index
from downstream.explorer.runs import RunCurves
from tests.bilm.embedding.elmo_models import tiny

if TYPE_CHECKING:
    from downstream.explorer.service import Loaded

LINES = [
    "the bank floods .",
    "the bank and the river lend money .",
    "",
    "a Bank lends",
    "the river floods the bank .",
    "the bank floods .",
    *(f"number {i} is near the bank" for i in range(40)),
]

INVARIANT = Limits(batch_invariant=True)  # as in `bilm explore`


def write_text(directory: Path) -> Path:
    path = directory / "text.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


def make_index(directory: Path, pretrained: PretrainedBiLm) -> OccurrenceIndex:
    """Return an index of `LINES`."""
    text = write_text(directory)
    return open_index(text, Embedder(pretrained, device="cpu"), 10_000, directory / "indexes")


def load(
    index: OccurrenceIndex | None = None,
    pretrained: PretrainedBiLm | None = None,
    classifier: TextClassifier | None = None,
    runs: tuple[RunCurves, ...] = (),
) -> Loaded:
    """Return everything that a service needs, with a tiny model that has a softmax."""
    from downstream.explorer.service import Loaded, scorer_of  # needs the extra `serve`

    model = tiny() if pretrained is None else pretrained
    embedder = Embedder(model, INVARIANT, device="cpu")
    return Loaded("tiny", embedder, scorer_of(model, embedder), index, classifier, runs)
