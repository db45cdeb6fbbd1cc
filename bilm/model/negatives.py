"""bilm/model/negatives."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Negatives(NamedTuple):
    """Distinct word ids and the log of how often each word was to be expected among them."""

    ids: Tensor  # (num_negatives,) long
    num_tries: int  # draws that it took to get them distinct


def log_uniform(ids: Tensor, vocabulary_size: int) -> Tensor:
    """`P(k) = log((k + 2) / (k + 1)) / log(V + 1)`, in float64: the draw's distribution."""
    return torch.log1p(1.0 / (ids.double() + 1.0)) / math.log(vocabulary_size + 1.0)


def log_expected_count(ids: Tensor, num_tries: int, vocabulary_size: int) -> Tensor:
    """Log of the chance that a word is among the distinct ones of `num_tries` draws."""
    p = log_uniform(ids, vocabulary_size)
    return torch.log(-torch.expm1(num_tries * torch.log1p(-p)))


def draw_negatives(num_negatives: int, vocabulary_size: int, seed: tuple[int, ...]) -> Negatives:
    """Draw until `num_negatives` distinct words are found; a pure function of the seed.

    When all words are asked for, each is certain, no draw is needed, and `num_tries` is 0.
    """
    if num_negatives >= vocabulary_size:
        return Negatives(torch.arange(vocabulary_size), 0)
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed)))
    draws = np.empty(0, dtype=np.int64)
    while True:
        uniform = generator.random(max(1024, 2 * num_negatives))
        more = np.exp(uniform * math.log(vocabulary_size + 1.0)).astype(np.int64) - 1
        # Rounding may reach V itself; the chance is that of the last word.
        draws = np.concatenate([draws, np.minimum(more, vocabulary_size - 1)])
        _, first = np.unique(draws, return_index=True)
        if len(first) >= num_negatives:
            first = np.sort(first)[:num_negatives]  # in the order in which they were drawn
            return Negatives(torch.from_numpy(draws[first]), int(first[-1]) + 1)
