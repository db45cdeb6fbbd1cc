"""Perplexity of a split by the full softmax, for each direction, over any number of ranks.

Dropout is off, and the LSTM state starts at zero and is carried over. The text is cut into the same
rows for any number of ranks, so the result does not depend on that number.

With a limit on the words, every row is read only up to the same length. The blocks of the split are
first permuted with a constant seed, so the subset is a random sample that is the same at each
evaluation, in each run, and on any number of ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bilm.corpus.batches import BatchStream
from bilm.corpus.global_batch import GlobalBatch
from bilm.corpus.manifest import SplitInfo
from bilm.distributed.ranks import Ranks
from bilm.errors import DivergedError
from bilm.model.language_model import BiLm
from bilm.model.perplexity import TextPerplexity
from bilm.model.perplexity import perplexity as perplexity
from bilm.training.model_inputs import batch_tensors

SUBSET_SEED = 0


@dataclass(frozen=True)
class EvaluatedText:
    """The text that an evaluation reads: a whole split, or a fixed subset of it."""

    stream: BatchStream
    num_steps: int

    @property
    def is_complete(self) -> bool:
        """Whether it is the whole split."""
        return self.num_steps == self.stream.steps_per_epoch


def evaluation_order(
    split: SplitInfo, batch: GlobalBatch, max_words: int | None
) -> tuple[GlobalBatch, int]:
    """Return the order in which to read a split, and the number of steps.

    `batch` is the shape of a step. `max_words` limits the predictions of one direction.
    """
    predictions = split.words + split.sentences
    steps = math.ceil(math.ceil(predictions / batch.rows) / batch.unroll)
    if max_words is None or predictions <= max_words:
        return replace(batch, shuffle=False), steps
    steps = min(steps, max(1, max_words // (batch.rows * batch.unroll)))
    return replace(batch, shuffle=True, seed=SUBSET_SEED), steps


@dataclass(frozen=True)
class Perplexity(TextPerplexity):
    """The perplexities of a model on a split."""

    num_available: int  # predictions of the whole split

    @property
    def text(self) -> str:
        """The number of predictions, and of how many in the split if that is more."""
        if self.num_predictions == self.num_available:
            return f"{self.num_predictions:,} predictions"
        return f"a subset of {self.num_predictions:,} of {self.num_available:,} predictions"


@dataclass(frozen=True)
class LossTotals:
    """Loss sums and the counts of what was predicted, of one rank or of all."""

    loss_sums: Tensor  # (directions,) float64
    predictions: int  # of one direction
    sentences: int  # whose end was predicted
    unknown_words: int

    def sum_over_ranks(self, ranks: Ranks) -> LossTotals:
        """Return the totals of all ranks; all of them must call this."""
        counts = torch.tensor(
            [self.predictions, self.sentences, self.unknown_words], dtype=torch.float64
        )
        totals = ranks.gather(torch.cat([self.loss_sums, counts])).cpu().sum(dim=0)
        return LossTotals(totals[:-3], *map(int, totals[-3:].tolist()))

    def perplexity(self, text: EvaluatedText) -> Perplexity:
        """Return the perplexity that follows from these totals over all of `text`."""
        if not bool(torch.isfinite(self.loss_sums).all()):
            raise DivergedError(
                f"the loss sums on {text.stream.split} are {self.loss_sums.tolist()}: some of the "
                "model's weights are not finite, or far too large"
            )
        return Perplexity(
            losses=tuple((self.loss_sums / self.predictions).tolist()),
            num_predictions=self.predictions,
            unknown_share=self.unknown_words / max(1, self.predictions - self.sentences),
            num_available=text.stream.num_predictions,
        )


def loss_totals(
    model: BiLm,
    text: EvaluatedText,
    device: torch.device,
    check: Callable[[], None] = lambda: None,
) -> LossTotals:
    """Return this rank's totals over `text`.

    `check` is called before each batch; an exception that it raises ends the evaluation.
    """
    state, predictions, sentences, unknown = None, 0, 0, 0
    special = text.stream.corpus.lexicon.special_ids
    loss_sums = torch.zeros(model.config.num_directions, dtype=torch.float64)
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            for batch in text.stream.read(0, text.num_steps, workers=1):
                check()
                inputs = batch_tensors(batch, text.stream.corpus, model.config, device)
                before = state or model.zero_state(batch.word_index.shape[1])
                losses, state = model(*inputs, before)
                loss_sums += losses.double().cpu()
                predictions += batch.num_predictions
                sentences += int((batch.targets[0] == special.end_sentence).sum())
                unknown += int((batch.targets[0] == special.unknown).sum())
    finally:
        model.train(was_training)
    return LossTotals(loss_sums, predictions, sentences, unknown)
