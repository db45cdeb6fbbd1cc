"""The softmax over the vocabulary, shared by both directions: sampled in training, else full."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bilm.kernels.checks import check_dims, check_floats, check_ids, check_integers, check_shape
from bilm.kernels.full_softmax import full_loss
from bilm.kernels.sampled_softmax import Candidates, SampledRows, sampled_loss, sampled_rows
from bilm.model.negatives import Negatives
from bilm.text.vocabulary import IGNORED


class SampledTargets(NamedTuple):
    """The targets and the sampled words of a batch, with all that depends on their ids only.

    A loader can prepare it on the host, so that no step waits for an accelerator.
    """

    targets: Candidates  # (sets, words)
    sampled: Candidates  # (sets, negatives)
    rows: SampledRows

    def map(self, function: Callable[[Tensor], Tensor]) -> SampledTargets:
        """Apply a function, such as a copy to a device, to every tensor."""
        return SampledTargets(
            Candidates(*map(function, self.targets)),
            Candidates(*map(function, self.sampled)),
            SampledRows(*map(function, self.rows)),
        )


def sampled_targets(
    targets: Tensor, negatives: Sequence[Negatives], vocabulary_size: int
) -> SampledTargets:
    """Combine targets (directions, words), or `IGNORED`, with one set of negatives each or for all.

    The candidates are the ids with their expected counts among the negatives of their set.
    """
    if len(negatives) not in (1, len(targets)):
        raise ValueError(
            f"there are {len(negatives)} sets of negatives; there must be 1 or {len(targets)}"
        )
    real = targets.clamp(min=0).view(len(negatives), -1)  # one row of words per set
    sampled = torch.stack([n.ids for n in negatives])

    def candidates(ids: Tensor) -> Candidates:
        pairs = zip(ids, negatives, strict=True)
        counts = [n.log_counts(own, vocabulary_size) for own, n in pairs]
        return Candidates(ids, torch.stack(counts))

    return SampledTargets(candidates(real), candidates(sampled), sampled_rows(real, sampled))


class VocabularySoftmax(nn.Module):
    """Map hidden vectors (directions, words, dim) and targets (directions, words) to losses."""

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
        """Initialize the weights, except for a tied weight, which the input initializes."""
        if not self.is_tied:
            nn.init.normal_(self.weight, 0.0, 1.0 / math.sqrt(self.weight.shape[1]))
        nn.init.zeros_(self.bias)

    def forward(
        self,
        hidden: Tensor,
        targets: Tensor,
        negatives: Sequence[Negatives] | SampledTargets | None,
    ) -> Tensor:
        """Return the loss of each word (directions, words), 0 where the target is `IGNORED`.

        `negatives` is one set per direction, or one set for all, which requires only one product;
        or it is the result of `sampled_targets` for them and these targets. Without negatives the
        loss is that of the full softmax.
        """
        check_floats(hidden=hidden)
        check_dims("hidden", hidden, "directions", "words", "dim")
        check_integers("targets", targets, hidden.device)
        check_shape("targets", targets, *hidden.shape[:2])
        check_ids("targets", targets, self.vocabulary_size, minimum=IGNORED)
        if negatives is None:
            real = targets.clamp(min=0).flatten()
            losses = full_loss(hidden.flatten(0, 1), self.weight, self.bias, real)
        else:
            if not isinstance(negatives, SampledTargets):
                negatives = sampled_targets(targets, negatives, self.vocabulary_size)
            sets, words = negatives.targets.ids.shape
            losses = self.sampled_loss(hidden.reshape(sets, words, -1), *negatives)
        return losses.view_as(targets).masked_fill(targets == IGNORED, 0.0)

    def sampled_loss(
        self,
        hidden: Tensor,
        targets: Candidates,
        sampled: Candidates,
        rows: SampledRows | None = None,
    ) -> Tensor:
        """Return the cross entropy of each target against the sampled words: (sets, words).

        `hidden` is (sets, words, dim), the targets (sets, words), the sampled words (sets,
        negatives). A target among its own negatives is masked there.
        """
        return sampled_loss(hidden, self.weight, self.bias, targets, sampled, rows)
