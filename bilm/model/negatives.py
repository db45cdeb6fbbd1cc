"""The negatives of the sampled softmax: distinct words, drawn log-uniformly over their ids."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Negatives(NamedTuple):
    """Distinct word ids and the number of draws that it took to get them."""

    ids: Tensor  # (num_negatives,) long
    num_tries: int

    def log_counts(self, ids: Tensor, vocabulary_size: int) -> Tensor:
        """Return the log of the expected count of each id; 0 if all words are in the sample."""
        if not self.num_tries:
            return torch.zeros_like(ids, dtype=torch.double)
        return log_expected_count(ids, self.num_tries, vocabulary_size)


def log_uniform(ids: Tensor, vocabulary_size: int) -> Tensor:
    """Return `P(k) = log((k + 2) / (k + 1)) / log(V + 1)`, the distribution of a draw: float64."""
    return torch.log1p(1.0 / (ids.double() + 1.0)) / math.log(vocabulary_size + 1.0)


def log_expected_count(ids: Tensor, num_tries: int, vocabulary_size: int) -> Tensor:
    """Return the log of the probability that a word is among `num_tries` draws."""
    p = log_uniform(ids, vocabulary_size)
    return torch.log(-torch.expm1(num_tries * torch.log1p(-p)))


def draw_negatives(num_negatives: int, vocabulary_size: int, seed: tuple[int, ...]) -> Negatives:
    """Draw until `num_negatives` distinct words are found; a pure function of the seed.

    If `num_negatives` is at least the size of the vocabulary, all words are returned, no draw is
    needed, and `num_tries` is 0.
    """
    if num_negatives >= vocabulary_size:
        return Negatives(torch.arange(vocabulary_size), 0)
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed)))
    draws = np.empty(0, dtype=np.int64)
    while True:
        uniform = generator.random(max(1024, 2 * num_negatives))
        more = np.exp(uniform * math.log(vocabulary_size + 1.0)).astype(np.int64) - 1
        # Rounding may produce V itself, which then counts as the last word.
        draws = np.concatenate([draws, np.minimum(more, vocabulary_size - 1)])
        _, first = np.unique(draws, return_index=True)
        if len(first) >= num_negatives:
            first = np.sort(first)[:num_negatives]  # in the order of the draws
            return Negatives(torch.from_numpy(draws[first]), int(first[-1]) + 1)
