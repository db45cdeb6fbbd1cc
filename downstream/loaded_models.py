"""Models by their path, loaded once a process.

A grid search or a cross-validation makes dozens of copies of an estimator; all of them share one
model in memory, and a copy that is sent to another process carries only the path.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from bilm.embedder import Embedder
from bilm.initial_weights import load_source

_KEPT = 2  # models in memory


def embedder_at(path: Path | str) -> Embedder:
    """The embedder of a run (its best model), a model directory or a published pair of files.

    The model is read again when a file of it has changed.
    """
    directory = Path(path).resolve()
    files = [f for f in directory.glob("*") if f.is_file()] if directory.is_dir() else []
    state = tuple(sorted((f.name, f.stat().st_mtime_ns, f.stat().st_size) for f in files))
    return _load(directory, state)


@lru_cache(maxsize=_KEPT)
def _load(directory: Path, state: tuple[tuple[str, int, int], ...]) -> Embedder:
    return Embedder(load_source(directory))
