"""Models by their path, loaded once per process.

A grid search or a cross-validation makes dozens of copies of an estimator. All of them share one
model in memory, and a copy that is sent to another process carries only the path.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from bilm.embedding.embedder import Embedder
from bilm.model.precision import Precision
from bilm.pretrained.digests import model_digest
from bilm.pretrained.locations import locate
from bilm.pretrained.model_directory import PretrainedBiLm

MAX_LOADED_MODELS = 2


class _FileState(NamedTuple):
    path: Path
    modified_ns: int
    num_bytes: int


class _ModelState(NamedTuple):
    """A model (a directory or a file) and its files; a changed file gives a different state."""

    directory: Path
    files: tuple[_FileState, ...]


def embedder_at(
    path: Path | str, device: str | None = None, precision: Precision = "float32"
) -> Embedder:
    """Return the embedder of a run (its best model), a model directory or published files.

    The model is loaded again if one of its files has changed.
    """
    return _load(_state_of(path), device, precision)


def digest_at(path: Path | str) -> str:
    """Return the digest of everything that determines the representations of the model."""
    return _digest(_state_of(path))


def _state_of(path: Path | str) -> _ModelState:
    directory = locate(path).path.resolve()
    files = [f for place in (directory, directory / "best") for f in (place, *place.glob("*"))]
    stats = [(f, f.stat()) for f in files if f.is_file()]
    states = sorted(_FileState(file, s.st_mtime_ns, s.st_size) for file, s in stats)
    return _ModelState(directory, tuple(states))


@lru_cache(maxsize=MAX_LOADED_MODELS)
def _open(state: _ModelState) -> PretrainedBiLm:
    return PretrainedBiLm.open(state.directory)


@lru_cache(maxsize=MAX_LOADED_MODELS)
def _load(state: _ModelState, device: str | None, precision: Precision) -> Embedder:
    return Embedder(_open(state), device=device, precision=precision)


@lru_cache(maxsize=MAX_LOADED_MODELS)
def _digest(state: _ModelState) -> str:
    return model_digest(_open(state))
