"""A random share of the examples of a split, to measure how much a head learns from few labels."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from downstream.features.batches import Batch, Examples, Ids, Source, Targets


@dataclass(frozen=True)
class _PartOfSource:
    """The texts at some indices of a source."""

    whole: Source
    indices: Ids

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def lengths(self) -> Ids:
        return self.whole.lengths[self.indices]

    def batch(self, indices: Ids) -> Batch:
        return self.whole.batch(self.indices[indices])


@dataclass(frozen=True)
class _PartOfTargets:
    """The targets at some indices."""

    whole: Targets
    indices: Ids

    def __len__(self) -> int:
        return len(self.indices)

    def batch(self, indices: Ids) -> Tensor:
        return self.whole.batch(self.indices[indices])


def draw_examples(examples: Examples, share: float, seed: int) -> Examples:
    """Draw a share of the examples, at least one; a smaller share is a subset of a larger one."""
    if share == 1:
        return examples
    count = math.ceil(share * len(examples.source))
    order = np.random.default_rng(seed).permutation(len(examples.source))
    indices: Ids = np.sort(order[:count])
    source, labels = _PartOfSource(examples.source, indices), examples.labels
    if isinstance(labels, np.ndarray):
        return replace(examples, source=source, labels=labels[indices])
    return replace(examples, source=source, labels=_PartOfTargets(labels, indices))
