"""Perplexity of a split by the full softmax, for each direction, over any number of ranks.

Dropout is off, and the LSTM state starts at zero and is carried over. The text is cut into the same
rows for any number of ranks, so the result does not depend on that number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bilm.corpus.batches import BatchStream
from bilm.corpus.reader import Corpus
from bilm.distributed.ranks import Ranks
from bilm.errors import DivergedError
from bilm.model.language_model import DIRECTIONS, BiLm
from bilm.training.model_inputs import batch_tensors

_MAX_LOSS = 700.0  # exp of a larger loss overflows


def perplexity(loss: float) -> float:
    """Return `exp(loss)` of a loss in nats, limited so that it stays finite."""
    return math.exp(min(_MAX_LOSS, loss))


@dataclass(frozen=True)
class Perplexity:
    """The mean losses of a model on a split, and the perplexities that follow from them."""

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


@dataclass(frozen=True)
class LossTotals:
    """Loss sums and the number of predictions, of one rank or of all."""

    loss_sums: Tensor  # (directions,) float64
    predictions: int  # of one direction

    def sum_over_ranks(self, ranks: Ranks) -> LossTotals:
        """Return the totals of all ranks; all of them must call this."""
        predictions = torch.tensor([self.predictions], dtype=torch.float64)
        totals = ranks.gather(torch.cat([self.loss_sums, predictions])).cpu().sum(dim=0)
        return LossTotals(totals[:-1], int(totals[-1]))

    def perplexity(self, corpus: Corpus, split: str) -> Perplexity:
        """Return the perplexity that follows from these totals over all of `split`."""
        if not bool(torch.isfinite(self.loss_sums).all()):
            raise DivergedError(
                f"the loss sums on {split} are {self.loss_sums.tolist()}: some of the model's "
                "weights are not finite, or far too large"
            )
        info = corpus.split(split)
        return Perplexity(
            losses=tuple((self.loss_sums / self.predictions).tolist()),
            num_predictions=self.predictions,
            unknown_share=info.unknown_words / max(1, info.words),
        )


def loss_totals(
    model: BiLm,
    stream: BatchStream,
    device: torch.device,
    check: Callable[[], None] = lambda: None,
) -> LossTotals:
    """Return this rank's totals over one epoch of `stream`.

    `check` is called before each batch; an exception that it raises ends the evaluation.
    """
    state, predictions = None, 0
    loss_sums = torch.zeros(model.config.num_directions, dtype=torch.float64)
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            for batch in stream.read(0, stream.steps_per_epoch, workers=1):
                check()
                inputs = batch_tensors(batch, stream.corpus, model.config, device)
                before = state or model.zero_state(batch.word_index.shape[1])
                losses, state = model(*inputs, before)
                loss_sums += losses.double().cpu()
                predictions += batch.num_predictions
    finally:
        model.train(was_training)
    return LossTotals(loss_sums, predictions)
