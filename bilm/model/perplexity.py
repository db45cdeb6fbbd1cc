"""Perplexity: the exponential of a mean loss, for each direction and for both."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bilm.model.language_model import DIRECTIONS

_MAX_LOSS = 700.0  # exp of a larger loss overflows


def perplexity(loss: float) -> float:
    """Return `exp(loss)` of a loss in nats, limited so that it stays finite."""
    return math.exp(min(_MAX_LOSS, loss))


@dataclass(frozen=True)
class TextPerplexity:
    """The mean losses of a model on a text, and the perplexities that follow from them."""

    losses: tuple[float, ...]  # of each direction, per prediction, in nats
    num_predictions: int  # of one direction
    unknown_share: float  # share of words outside the vocabulary

    @property
    def mean(self) -> float:
        """The geometric mean over directions, which is the published figure."""
        return perplexity(sum(self.losses) / len(self.losses))

    @property
    def by_direction(self) -> dict[str, float]:
        """The perplexity of each direction, by its name."""
        return dict(zip(DIRECTIONS, map(perplexity, self.losses), strict=False))
