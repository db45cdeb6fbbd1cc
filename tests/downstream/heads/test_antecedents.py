from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from downstream.heads.antecedents import (
    Antecedents,
    AntecedentScorer,
    PairFeatures,
    SpanSet,
    antecedent_losses,
    true_choices,
)

BUCKETS = {
    1: 0,
    2: 1,
    3: 2,
    4: 3,
    5: 4,
    7: 4,
    8: 5,
    15: 5,
    16: 6,
    31: 6,
    32: 7,
    63: 7,
    64: 8,
    99: 8,
}


def scorer(max_antecedents: int) -> AntecedentScorer:
    torch.manual_seed(0)
    return AntecedentScorer(4, 5, 0.3, max_antecedents, PairFeatures(3, True)).double().eval()


def spans(count: int) -> SpanSet:
    generator = torch.Generator().manual_seed(1)
    vectors = torch.randn(count, 4, generator=generator, dtype=torch.float64)
    scores = torch.randn(count, generator=generator, dtype=torch.float64)
    return SpanSet(vectors, scores, torch.arange(count) % 2, torch.tensor(2))


def score_of(net: AntecedentScorer, s: SpanSet, i: int, j: int) -> tuple[Tensor, Tensor]:
    """Return the coarse score and the whole score of one pair."""
    assert net.speakers is not None
    assert net.genres is not None
    assert s.speakers is not None
    a, b = s.vectors[i], s.vectors[j]
    coarse = s.scores[i] + s.scores[j] + net.coarse(a) @ b
    distance = max(d for d in BUCKETS if d <= i - j)
    hidden = net.span(a) + net.antecedent(b) + net.product(a * b)
    hidden = hidden + net.distances.weight[BUCKETS[distance]] + net.genres.weight[s.genre]
    hidden = hidden + net.speakers.weight[int(s.speakers[i] == s.speakers[j])]
    return coarse, coarse + net.score(F.relu(hidden)).squeeze()


@pytest.mark.parametrize("count", [1, 2, 6, 40])
def test_scores_equal_those_of_single_pairs(count: int) -> None:
    net, s = scorer(3), spans(count)
    found = net(s)
    assert found.indices.shape == (count, min(3, count - 1))
    for i in range(count):
        coarse = {j: score_of(net, s, i, j)[0].item() for j in range(i)}
        best = sorted(coarse, key=lambda j: -coarse[j])[:3]
        assert found.scores[i, 0] == 0
        for k, j in enumerate(best):
            assert found.indices[i, k] == j
            torch.testing.assert_close(found.scores[i, k + 1], score_of(net, s, i, j)[1])
        assert (found.scores[i, len(best) + 1 :] == -torch.inf).all()


def test_distances_have_the_published_buckets() -> None:
    net = scorer(99)
    for distance, bucket in BUCKETS.items():
        found = torch.bucketize(torch.tensor(distance), net.boundaries, right=True)
        assert found == bucket


def test_loss_is_the_likelihood_of_all_true_antecedents() -> None:
    indices = torch.tensor([[1, 2], [0, 2], [0, 1]])
    scores = torch.tensor([[0.0, -math.inf, -math.inf], [0, 1, -math.inf], [0, 2, 3]])
    scores = scores.double()
    found = Antecedents(indices, scores)
    clusters = torch.tensor([5, -1, 5])
    e = math.exp
    losses = [0.0, -math.log(1 / (1 + e(1))), -math.log(e(2) / (1 + e(2) + e(3)))]
    torch.testing.assert_close(
        antecedent_losses(found, clusters), torch.tensor(losses, dtype=torch.float64)
    )
    together = antecedent_losses(found, torch.tensor([5, 5, 5]))
    assert float(together[2]) == pytest.approx(-math.log((e(2) + e(3)) / (1 + e(2) + e(3))))
    assert true_choices(found, clusters).tolist() == [
        [True, False, False],
        [True, False, False],
        [False, True, False],
    ]


def test_every_parameter_gets_a_finite_gradient() -> None:
    net, s = scorer(3).train(), spans(8)
    antecedent_losses(net(s), torch.tensor([0, 1, 0, -1, 1, 0, 2, 2])).sum().backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
        assert torch.isfinite(parameter.grad).all(), name
