"""Models by their path, loaded once a process.

A grid search or a cross-validation makes dozens of copies of an estimator; all of them share one
model in memory, and a copy that is sent to another process carries only the path.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from bilm.embedding.embedder import Embedder
from bilm.pretrained.digests import model_digest
from bilm.pretrained.model_directory import PretrainedBiLm

_State = tuple[tuple[str, int, int], ...]  # name, time and size of each file

_KEPT = 2  # models in memory


def embedder_at(path: Path | str) -> Embedder:
    """The embedder of a run (its best model), a model directory or a published pair of files.

    The model is read again when a file of it has changed.
    """
    return _load(*_state_of(path))


def digest_at(path: Path | str) -> str:
    """The digest of that model, as representations depend on it."""
    return _digest(*_state_of(path))


def _state_of(path: Path | str) -> tuple[Path, _State]:
    directory = Path(path).resolve()
    files = [f for place in (directory, directory / "best") for f in place.glob("*")]
    stats = [(str(f), f.stat()) for f in files if f.is_file()]
    return directory, tuple(sorted((name, s.st_mtime_ns, s.st_size) for name, s in stats))


@lru_cache(maxsize=_KEPT)
def _load(directory: Path, state: _State) -> Embedder:
    return Embedder(PretrainedBiLm.open(directory))


@lru_cache(maxsize=_KEPT)
def _digest(directory: Path, state: _State) -> str:
    return model_digest(_load(directory, state).pretrained)
