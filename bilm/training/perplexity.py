"""Held-out perplexity by the full softmax, of both directions, over any number of ranks.

No dropout, the state carried from zero. The text is cut into the same rows whatever the number of
ranks, so the figure is the same on any of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from bilm.corpus.batches import Batch, BatchStream
from bilm.corpus.reader import Corpus
from bilm.errors import DivergedError
from bilm.model.language_model import DIRECTIONS, BiLm
from bilm.training.step import batch_tensors

_MAX_LOSS = 700.0  # exp of more is no float


def perplexity(loss: float) -> float:
    """`exp(loss)`, of a loss in nats; a hopeless one is cut, so that it stays a number."""
    return math.exp(min(_MAX_LOSS, loss))


@dataclass(frozen=True)
class Perplexity:
    """What a split costs a model, per prediction."""

    losses: tuple[float, ...]  # of each direction, in nats
    num_predictions: int  # of one direction
    unknown_share: float  # of the words, outside the vocabulary

    @property
    def mean(self) -> float:
        """The geometric mean of the directions: the published figure."""
        return perplexity(sum(self.losses) / len(self.losses))

    @property
    def by_direction(self) -> dict[str, float]:
        """Forward, and backward if there is one."""
        return dict(zip(DIRECTIONS, map(perplexity, self.losses), strict=False))


def loss_sums(
    model: BiLm,
    stream: BatchStream,
    device: torch.device,
    check: Callable[[], None] = lambda: None,
) -> Tensor:
    """This rank's loss sums by direction and its number of predictions, in float64.

    `check` is called before each batch; what it raises ends the evaluation.
    """
    rows_state = None
    totals = torch.zeros(model.config.num_directions + 1, dtype=torch.float64)
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            for batch in _epoch(stream):
                check()
                words, inverse, targets = batch_tensors(batch, stream.corpus, model.config, device)
                state = rows_state or model.zero_state(inverse.shape[1])
                sums, rows_state = model(words, inverse, targets, state)
                totals[:-1] += sums.double().cpu()
                totals[-1] += batch.num_predictions
    finally:
        model.train(was_training)
    return totals


def perplexity_of(totals: Tensor, corpus: Corpus, split: str) -> Perplexity:
    """The perplexity for loss sums and predictions summed over all ranks."""
    if not bool(torch.isfinite(totals).all()):
        raise DivergedError(
            f"the losses on {split} sum up to {totals[:-1].tolist()}: the model's weights are not "
            "all finite, or far too large"
        )
    info = corpus.split(split)
    return Perplexity(
        losses=tuple((totals[:-1] / totals[-1]).tolist()),
        num_predictions=int(totals[-1]),
        unknown_share=info.unknown_words / max(1, info.words),
    )


def _epoch(stream: BatchStream) -> Iterator[Batch]:
    return stream.read(0, stream.steps_per_epoch, workers=1)
