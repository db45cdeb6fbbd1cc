"""The layers of a biLM."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bilm.embedding.embedder import Embedder
from experiments.comparison.features import FloatArray, Words


class BilmFeatures:
    """All layers of a biLM: the token encoder and each LSTM layer, both directions."""

    def __init__(self, model: Path) -> None:
        self._embedder = Embedder.from_pretrained(model, device="cpu")
        self.num_layers, self.dim = self._embedder.num_layers, self._embedder.dim
        parts = (self._embedder.pretrained.model.encoder, self._embedder.pretrained.model.bilstm)
        self.num_parameters = sum(p.numel() for part in parts for p in part.parameters())

    def words(self, sentences: Sequence[Words]) -> list[FloatArray]:
        return self._embedder.embed([list(words) for words in sentences])
