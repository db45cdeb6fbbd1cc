from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from downstream.heads.spans import SpanGrid, SpanScorer, best_spans, take_without_crossing


def scorer(max_width: int = 3) -> SpanScorer:
    torch.manual_seed(0)
    return SpanScorer(4, 5, 6, max_width).double()


def words(count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    contexts = torch.randn(count, 4, generator=generator, dtype=torch.float64)
    return contexts, torch.randn(count, 5, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_grid_equals_a_layer_on_each_span(count: int) -> None:
    net, (contexts, inputs) = scorer(), words(count)
    sentences = torch.tensor([0, 0, 0, 1, 1, 2, 2])[:count]
    grid = net(contexts, inputs, sentences)
    assert grid.mask.shape == (count, 3)
    weight = torch.cat([net.first.weight, net.last.weight, net.head.weight], dim=1)
    for i, k in itertools.product(range(count), range(3)):
        inside = i + k < count and sentences[i] == sentences[min(i + k, count - 1)]
        assert bool(grid.mask[i, k]) == inside
        if not inside:
            continue
        logits = 10 * torch.tanh(net.attend(contexts[i : i + k + 1]) / 10)
        head = (logits.softmax(dim=0) * inputs[i : i + k + 1]).sum(dim=0)
        joined = torch.cat([contexts[i], contexts[i + k], head])
        vector = F.relu(weight @ joined + net.first.bias + net.widths.weight[k])
        torch.testing.assert_close(grid.vectors[i, k], vector)
        torch.testing.assert_close(grid.scores[i, k], net.score(vector).squeeze())


def test_attention_is_finite_for_large_inputs() -> None:
    net, (contexts, inputs) = scorer().float(), words(4)
    grid = net(contexts.float() * 1e4, inputs.float(), torch.zeros(4, dtype=torch.int64))
    assert torch.isfinite(grid.scores).all()


def crosses(a: tuple[int, int], b: tuple[int, int]) -> bool:
    words_a, words_b = set(range(a[0], a[1] + 1)), set(range(b[0], b[1] + 1))
    return bool(words_a & words_b) and not words_a <= words_b and not words_b <= words_a


def test_pruning_agrees_with_brute_force() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        every = [(i, j) for i in range(7) for j in range(i, min(7, i + 4))]
        spans = [every[i] for i in rng.permutation(len(every))]
        limit = int(rng.integers(0, 12))
        expected: list[int] = []
        for i, span in enumerate(spans):
            if len(expected) < limit and not any(crosses(span, spans[k]) for k in expected):
                expected.append(i)
        assert take_without_crossing(spans, limit) == expected


def test_best_spans_are_in_the_order_of_the_text() -> None:
    scores = torch.tensor([[0.1, 0.9], [0.8, 0.7], [0.3, 9.0]])
    mask = torch.tensor([[True, True], [True, True], [True, False]])
    grid = SpanGrid(torch.zeros(3, 2, 1), scores, mask)
    first, widths = best_spans(grid, 3)  # (1, 2) crosses (0, 1); (2, 3) is not a span
    assert list(zip(first.tolist(), widths.tolist(), strict=True)) == [(0, 1), (1, 0), (2, 0)]
    first, widths = best_spans(grid, 99)
    assert len(first) == 4
