"""The layers of a biLM, and the system directories of the trained and the untrained one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bilm.embedding.embedder import Embedder
from bilm.files.writing import write_text
from downstream.baselines.untrained import save_untrained
from experiments.comparison.bilm_run import training_of
from experiments.comparison.features import SYSTEM_FILE, FloatArray, Words


class BilmFeatures:
    """All layers of a biLM: the token encoder and each LSTM layer, both directions."""

    def __init__(self, model: Path) -> None:
        self._embedder = Embedder.from_pretrained(model, device="cpu")
        self.num_layers, self.dim = self._embedder.num_layers, self._embedder.dim
        self.num_parameters = num_weights(self._embedder)

    def words(self, sentences: Sequence[Words]) -> list[FloatArray]:
        return self._embedder.embed([list(words) for words in sentences])


def num_weights(embedder: Embedder) -> int:
    """Return the number of weights of the encoder and the LSTMs, which compute the features."""
    model = embedder.pretrained.model
    parts = (model.encoder, model.bilstm)
    return sum(p.numel() for part in parts for p in part.parameters())


def write_bilm(model: Path, run: Path | None, output: Path) -> None:
    """Write the `system.json` of a trained biLM; `run` is the directory of its training."""
    embedder = Embedder.from_pretrained(model, device="cpu")
    whole = sum(p.numel() for p in embedder.pretrained.model.parameters())
    training: dict[str, Any] = {"parameters": whole}
    if run is not None:
        training |= training_of(run, output / "curve.jsonl")
    tree = {
        "kind": "bilm",
        "model": str(model.resolve()),
        "training": training,
        "versions": {"torch": version("torch"), "bilm": version("bilm")},
    }
    output.mkdir(parents=True, exist_ok=True)
    write_text(output / SYSTEM_FILE, json.dumps(tree, indent=1) + "\n")


def write_untrained(model: Path, output: Path, seed: int) -> None:
    """Write a biLM of the same shape with random weights, and its `system.json`."""
    output.mkdir(parents=True, exist_ok=True)
    directory = output / "model"
    if not directory.exists():
        save_untrained(model, directory, seed)
    tree = {
        "kind": "bilm",
        "model": str(directory.resolve()),
        "training": {"seed": seed},
        "versions": {"torch": version("torch"), "bilm": version("bilm")},
    }
    write_text(output / SYSTEM_FILE, json.dumps(tree, indent=1) + "\n")
