"""The head of all systems: standardized layers, a trained mix, and a classifier.

With a hidden layer it classifies texts; without, it is a linear tagger or probe. The mix is
`gamma * sum_j softmax(w)_j h_j` (`bilm.model.scalar_mix`), which is a scale if there is one layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bilm.model.scalar_mix import ScalarMix
from downstream.heads.layers import Dropout

HIDDEN_DIM = 256  # of the classifier of texts

_ROWS = 512  # per step of a sum or a prediction; they fit into the cache of a core


@dataclass(frozen=True)
class Moments:
    """The mean and the standard deviation of each number of the features: (layers, dim)."""

    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, features: Tensor, places: npt.NDArray[np.int64]) -> Moments:
        """Compute the moments of some rows of the features (rows, layers, dim)."""
        total = torch.zeros(features.shape[1:], dtype=torch.float64)
        squares = torch.zeros_like(total)
        for start in range(0, len(places), _ROWS):
            rows = features[torch.from_numpy(places[start : start + _ROWS])]
            total += rows.sum(dim=0)
            squares += rows.square_().sum(dim=0)
        mean = total / len(places)
        deviation = (squares / len(places) - mean**2).clamp(min=0).sqrt() + 1e-3
        return cls(mean.float(), deviation.float())


class Head(nn.Module):
    """A classifier of rows of features (rows, layers, dim)."""

    mean: Tensor
    scale: Tensor

    def __init__(self, moments: Moments, num_classes: int, hidden_dim: int, dropout: float) -> None:
        super().__init__()
        num_layers, dim = moments.mean.shape
        self.register_buffer("mean", moments.mean)
        self.register_buffer("scale", 1 / moments.deviation)
        self.mix = ScalarMix(num_layers)
        parts: list[nn.Module] = [Dropout(dropout)]
        if hidden_dim:
            parts += [nn.Linear(dim, hidden_dim), nn.ReLU(), Dropout(dropout)]
        self.output = nn.Sequential(*parts, nn.Linear(hidden_dim or dim, num_classes))

    def forward(self, rows: Tensor) -> Tensor:
        shares = self.mix.gamma * F.softmax(self.mix.weights, dim=0)
        # The mix of standardized layers, without a standardized copy of the rows.
        weights = shares[:, None] * self.scale  # (layers, dim)
        mixed = (rows * weights).sum(dim=1) - (weights * self.mean).sum(dim=0)  # (rows, dim)
        scores: Tensor = self.output(mixed)
        return scores

    def shares(self) -> list[float]:
        """Return the share of each layer in the mix; they sum to 1."""
        return F.softmax(self.mix.weights.detach(), dim=0).tolist()

    def predict(self, features: Tensor) -> npt.NDArray[np.int64]:
        """Return the class of each row."""
        self.eval()
        parts = [np.empty(0, np.int64)]
        with torch.inference_mode():
            for start in range(0, len(features), _ROWS):
                parts.append(self(features[start : start + _ROWS]).argmax(dim=-1).numpy())
        return np.concatenate(parts)
