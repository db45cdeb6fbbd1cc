"""The interface of all systems: sentences of words to arrays (layers, words, dim)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bilm.errors import CheckpointError
from bilm.files.strict_json import read_json

FloatArray = npt.NDArray[np.float32]

Words = Sequence[str]

SYSTEM_FILE = "system.json"


class Features(Protocol):
    """Frozen features of a system."""

    num_layers: int
    dim: int
    num_parameters: int  # that the features need

    def words(self, sentences: Sequence[Words]) -> list[FloatArray]:
        """Return an array (layers, words, dim) per sentence."""
        ...


def open_features(system: Path) -> Features:
    """Open the system that a `system.json` describes."""
    tree: dict[str, Any] = read_json(system, CheckpointError)
    kind, directory = tree.get("kind"), system.parent
    if kind == "masked_lm":
        from experiments.comparison.masked_features import MaskedFeatures

        return MaskedFeatures.open(directory, tree["settings"]["pooling"])
    if kind == "bilm":
        from experiments.comparison.bilm_features import BilmFeatures

        return BilmFeatures(Path(tree["model"]))
    if kind == "char_lms":
        from experiments.comparison.char_features import CharFeatures

        return CharFeatures.open(directory)
    from experiments.comparison.table_features import SubwordFeatures, TableFeatures

    if kind == "glove":
        return TableFeatures.read(Path(tree["vectors"]))
    if kind == "word2vec":
        return TableFeatures.open(directory)
    if kind == "fasttext":
        return SubwordFeatures.open(directory, tree["settings"])
    raise CheckpointError(f"{system} has the kind {kind!r}, which is unknown")
