"""Shares of the training examples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from downstream.features.batches import Examples, Ids, PooledSource
from downstream.features.drawn_examples import draw_examples


class Doubled:
    """Targets that are twice the index of their example."""

    def __len__(self) -> int:
        return 10

    def batch(self, indices: Ids) -> torch.Tensor:
        return torch.from_numpy(2 * indices)


def examples(labels: Ids | Doubled) -> Examples:
    layers = np.arange(10, dtype=np.float32).reshape(10, 1, 1, 1).repeat(2, axis=1)
    return Examples(PooledSource(layers, "mean"), labels)


@pytest.mark.parametrize("labels", [2 * np.arange(10), Doubled()])
def test_texts_keep_their_labels(labels: Ids | Doubled) -> None:
    drawn = draw_examples(examples(labels), 0.35, seed=1)
    assert len(drawn.source) == 4
    assert len(drawn.source.lengths) == 4
    indices = np.array([3, 0])
    numbers = drawn.source.batch(indices).layers.flatten()
    assert torch.equal(drawn.targets(indices), (2 * numbers).long())
    assert numbers[0] != numbers[1]


def test_a_smaller_share_is_a_subset_of_a_larger_one() -> None:
    numbers = [
        set(draw_examples(examples(np.arange(10)), share, seed=3).labels.tolist())  # type: ignore[union-attr]
        for share in (0.01, 0.3, 0.8)
    ]
    assert [len(n) for n in numbers] == [1, 3, 8]
    assert numbers[0] < numbers[1] < numbers[2]


def test_the_whole_is_the_same_object() -> None:
    all_of_them = examples(np.arange(10))
    assert draw_examples(all_of_them, 1.0, seed=0) is all_of_them


@pytest.mark.parametrize("labels", [np.arange(10), Doubled()])
def test_a_share_keeps_the_limit_of_words(labels: Ids | Doubled) -> None:
    limited = replace(examples(labels), usual_words=7)
    assert draw_examples(limited, 0.5, seed=0).usual_words == 7
