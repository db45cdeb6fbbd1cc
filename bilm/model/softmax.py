"""bilm/model/softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from bilm.kernels.full_softmax import _FullSoftmaxLoss
from bilm.kernels.sampled_softmax import _SampledLoss
from bilm.model.negatives import Negatives, log_expected_count
from bilm.text.vocabulary import IGNORED


class SampledSoftmax(nn.Module):
    """Hidden vectors (directions, words, dim) and targets (directions, words) to their losses."""

    def __init__(self, vocabulary_size: int, dim: int, weight: nn.Parameter | None = None) -> None:
        super().__init__()
        self.vocabulary_size = vocabulary_size
        self.is_tied = weight is not None
        self.weight = (
            weight if weight is not None else nn.Parameter(torch.empty(vocabulary_size, dim))
        )
        self.bias = nn.Parameter(torch.empty(vocabulary_size, 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """A tied weight belongs to the input, which initialises it."""
        if not self.is_tied:
            nn.init.normal_(self.weight, 0.0, 1.0 / math.sqrt(self.weight.shape[1]))
        nn.init.zeros_(self.bias)

    def forward(
        self, hidden: Tensor, targets: Tensor, negatives: Sequence[Negatives] | None
    ) -> Tensor:
        """Loss per word (directions, words), 0 where the target is `IGNORED`.

        One set of negatives per direction, or one for all, which then takes one product; without
        negatives the full softmax.
        """
        real = targets.clamp(min=0)
        if negatives is None:
            full_loss = cast(Callable[..., Tensor], _FullSoftmaxLoss.apply)
            losses = full_loss(hidden.flatten(0, 1), self.weight, self.bias, real.flatten())
        else:
            # one row of words per set: (sets, words)
            real = real.view(len(negatives), -1)
            losses = self.sampled_loss(
                hidden.reshape(*real.shape, -1),
                real,
                torch.stack([n.ids for n in negatives]),
                torch.stack([self._log_count(t, n) for t, n in zip(real, negatives, strict=True)]),
                torch.stack([self._log_count(n.ids, n) for n in negatives]),
            )
        return losses.view_as(targets).masked_fill(targets == IGNORED, 0.0)

    def _log_count(self, ids: Tensor, negatives: Negatives) -> Tensor:
        """By how much a logit is corrected; not at all where every word was certain."""
        if not negatives.num_tries:
            return torch.zeros_like(ids, dtype=torch.double)
        return log_expected_count(ids, negatives.num_tries, self.vocabulary_size)

    def sampled_loss(
        self,
        hidden: Tensor,
        targets: Tensor,
        sampled_ids: Tensor,
        true_log_count: Tensor,
        sampled_log_count: Tensor,
    ) -> Tensor:
        """Cross entropy of each target against the sampled words, accidental hits masked.

        All by set of negatives: hidden (sets, words, dim), targets and their counts (sets, words),
        sampled ids and their counts (sets, negatives).
        """
        sampled_loss = cast(Callable[..., Tensor], _SampledLoss.apply)
        return sampled_loss(
            hidden, self.weight, self.bias, targets, sampled_ids, true_log_count, sampled_log_count
        )
