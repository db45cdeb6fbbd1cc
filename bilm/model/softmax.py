"""The softmax over the vocabulary, shared by both directions: sampled in training, else full."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bilm.kernels.checks import check_dims, check_floats, check_ids, check_integers, check_shape
from bilm.kernels.full_softmax import full_loss
from bilm.kernels.sampled_softmax import Candidates, sampled_loss
from bilm.model.negatives import Negatives
from bilm.text.vocabulary import IGNORED


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
        self, hidden: Tensor, targets: Tensor, negatives: Sequence[Negatives] | None
    ) -> Tensor:
        """Return the loss of each word (directions, words), 0 where the target is `IGNORED`.

        `negatives` is one set per direction, or one set for all, which requires only one product.
        Without negatives the loss is that of the full softmax.
        """
        check_floats(hidden=hidden)
        check_dims("hidden", hidden, "directions", "words", "dim")
        check_integers("targets", targets, hidden.device)
        check_shape("targets", targets, *hidden.shape[:2])
        check_ids("targets", targets, self.vocabulary_size, minimum=IGNORED)
        if negatives is not None and len(negatives) not in (1, len(targets)):
            raise ValueError(
                f"there are {len(negatives)} sets of negatives; there must be 1 or {len(targets)}"
            )
        real = targets.clamp(min=0)
        if negatives is None:
            losses = full_loss(hidden.flatten(0, 1), self.weight, self.bias, real.flatten())
        else:
            # one row of words per set: (sets, words)
            real = real.view(len(negatives), -1)
            pairs = list(zip(real, negatives, strict=True))
            losses = self.sampled_loss(
                hidden.reshape(*real.shape, -1),
                self._candidates(pairs),
                self._candidates([(n.ids, n) for n in negatives]),
            )
        return losses.view_as(targets).masked_fill(targets == IGNORED, 0.0)

    def _candidates(self, sets: Sequence[tuple[Tensor, Negatives]]) -> Candidates:
        """Return the ids of all sets with their expected counts among the set's negatives."""
        return Candidates(
            torch.stack([ids for ids, _ in sets]),
            torch.stack([n.log_counts(ids, self.vocabulary_size) for ids, n in sets]),
        )

    def sampled_loss(self, hidden: Tensor, targets: Candidates, sampled: Candidates) -> Tensor:
        """Return the cross entropy of each target against the sampled words: (sets, words).

        `hidden` is (sets, words, dim), the targets (sets, words), the sampled words (sets,
        negatives). A target among its own negatives is masked there.
        """
        return sampled_loss(hidden, self.weight, self.bias, targets, sampled)
