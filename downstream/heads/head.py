"""What every head has: the protocol that the training loop uses, and the mixes of its inputs.

A head is a module that maps a batch to outputs. It defines their loss, how they are decoded into
predictions (one per example), and how predictions are compared with targets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from downstream.features.batches import Batch, FeatureShape
from downstream.heads.mixes import Mix, WeightedMix, make_mix
from downstream.settings.common import MixSettings
from downstream.settings.mix_kinds import MixKind

Predictions = Any  # an array or a list with one entry per example; its type depends on the head

_MIX_PLACES = {"input": ("input",), "output": ("output",), "both": ("input", "output")}


@dataclass(frozen=True)
class Evaluation:
    """The mean loss on some examples, and the score by which epochs are compared.

    The score is the accuracy, or for some tasks F1.
    """

    loss: float
    accuracy: float


class Head(Protocol):
    """A module that `fit` can train."""

    @property
    def evaluation_texts(self) -> int:
        """The number of examples per batch when the head predicts."""

    def __call__(self, batch: Batch) -> Any:
        """Return the outputs for a batch: a tensor with one row per example, or several."""

    def loss(self, outputs: Any, targets: Tensor, /) -> Tensor:
        """Return the mean loss of the outputs."""

    def count_correct(self, outputs: Any, targets: Tensor, /) -> Tensor:
        """Return the sum of the accuracies of the examples, as a tensor."""

    def decode(self, outputs: Any, targets: Tensor | None = None, /) -> Predictions:
        """Return predictions, one per example.

        If targets are given, in host memory, predictions may include the losses that `evaluate`
        needs.
        """

    def evaluate(self, predictions: Predictions, targets: Any, /) -> Evaluation:
        """Compare predictions with the targets; the result decides which epoch is best."""

    def regularization(self) -> Tensor:
        """Return the term that is added to the loss."""

    def mix_parameters(self) -> list[nn.Parameter]:
        """Return the parameters without weight decay, which have their own learning rate."""

    def shares(self) -> dict[str, list[float]]:
        """Return the shares of the layers in each mix."""

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def train(self) -> Any: ...

    def eval(self) -> Any: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any], /) -> Any: ...


class MixedModel(nn.Module):
    """The base class of heads: a module with mixes of the biLM's layers.

    A mix enters at the input of the task's encoder, at its output, or at both.
    """

    evaluation_texts: ClassVar[int] = 256

    def __init__(
        self, kind: MixKind, mix: MixSettings, elmo_at: str, shape: FeatureShape, seed: int
    ) -> None:
        super().__init__()
        self.mixes = nn.ModuleDict()
        if kind.name != "none":
            for i, place in enumerate(_MIX_PLACES[elmo_at]):
                self.mixes[place] = make_mix(kind, shape, mix, seed + i)

    def loss(self, outputs: Any, targets: Tensor, /) -> Tensor:
        """Return the mean loss of the outputs, without the penalty of the mixes."""
        raise NotImplementedError

    def count_correct(self, outputs: Any, targets: Tensor, /) -> Tensor:
        """Return the sum of the accuracies of the examples, as a tensor."""
        raise NotImplementedError

    def decode(self, outputs: Any, targets: Tensor | None = None, /) -> Predictions:
        """Return predictions, one per example."""
        raise NotImplementedError

    def evaluate(self, predictions: Predictions, targets: Any, /) -> Evaluation:
        """Compare predictions with the targets."""
        raise NotImplementedError

    def widths(self) -> dict[str, int]:
        """Return the width of the mix at each place."""
        return {place: int(mix.out_dim) for place, mix in self._mixes()}

    def mixed(self, batch: Batch) -> dict[str, Tensor]:
        """Return the mixed vectors (texts, words, dim) of each place."""
        return {place: mix(batch.layers, batch.mask) for place, mix in self._mixes()}

    def regularization(self) -> Tensor:
        """Return the term that the mixes add to the loss."""
        return sum((mix.regularization() for _, mix in self._mixes()), torch.zeros(()))

    def mix_parameters(self) -> list[nn.Parameter]:
        """Return the trained weights and gammas of the mixes."""
        weighted = [mix for _, mix in self._mixes() if isinstance(mix, WeightedMix)]
        return [p for mix in weighted for p in mix.parameters() if p.requires_grad]

    def shares(self) -> dict[str, list[float]]:
        """Return the shares of the layers in each mix."""
        return {place: mix.shares() for place, mix in self._mixes()}

    def scales(self) -> dict[str, float]:
        """Return gamma of each mix."""
        return {place: mix.scale() for place, mix in self._mixes()}

    def _mixes(self) -> list[tuple[str, Mix]]:
        return [(place, mix) for place, mix in self.mixes.items() if isinstance(mix, Mix)]
