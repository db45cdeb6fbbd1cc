"""Open a trained head and what it needs besides its own weights: the biLM and the word vectors.

They are found by their recorded paths, or at given ones, and checked by their digests.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bilm.embedding.embedder import DEFAULT_LIMITS, Embedder
from bilm.errors import CheckpointError, ConfigError
from bilm.model.precision import Precision
from bilm.pretrained.digests import model_digest
from bilm.pretrained.locations import locate
from bilm.pretrained.model_directory import PretrainedBiLm
from downstream.features.batches import FeatureShape
from downstream.features.word_vectors import WordVectors, vectors_digest
from downstream.heads.saved_head import HeadDescription


@dataclass(frozen=True)
class Places:
    """The paths of the biLM and the word vectors, if they have moved; the device and precision.

    `embedder` is one that is already open. It is used if its biLM is that of the head; otherwise,
    the biLM of the head gets its limits.
    """

    model: Path | str | None = None
    vectors: Path | str | None = None
    device: str | None = None
    precision: Precision = "float32"
    embedder: Embedder | None = None


@dataclass(frozen=True)
class OpenedInputs:
    """The biLM and the word vectors of a head, each if it has one."""

    embedder: Embedder | None
    vectors: WordVectors | None


def open_inputs(description: HeadDescription, directory: Path, places: Places) -> OpenedInputs:
    """Open and check the biLM and the word vectors of the head in `directory`."""
    for flag, given, record in (
        ("--model", places.model, description.bilm),
        ("--vectors", places.vectors, description.vectors),
    ):
        if given is not None and record is None:
            what = "biLM" if flag == "--model" else "word vectors"
            raise ConfigError(f"{flag} is {given}, but {directory} has no {what}; remove it")
    embedder = _open_bilm(description, directory, places)
    table = None
    if description.vectors is not None:
        path = Path(places.vectors if places.vectors is not None else description.vectors.path)
        description.vectors.check("file of word vectors", path, vectors_digest(path))
        table = WordVectors.read(path)
    vector_dim = 0 if table is None else table.dim
    num_layers, dim = (0, 0) if embedder is None else (embedder.num_layers, embedder.dim)
    description.check_shape(FeatureShape(num_layers, dim, vector_dim), directory)
    return OpenedInputs(embedder, table)


def _open_bilm(description: HeadDescription, directory: Path, places: Places) -> Embedder | None:
    if description.bilm is None:
        return None
    opened = places.embedder
    if opened is not None and model_digest(opened.pretrained) == description.bilm.digest:
        return opened
    limits = DEFAULT_LIMITS if opened is None else opened.limits
    name = str(places.model if places.model is not None else description.bilm.path)
    if not locate(name).path.exists():
        raise CheckpointError(f"the biLM of {directory} is not at {name}; pass its path (--model)")
    pretrained = PretrainedBiLm.open(name)
    embedder = Embedder(pretrained, limits, places.device, places.precision)
    description.bilm.check("biLM", Path(name), model_digest(embedder.pretrained))
    return embedder
