from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from downstream.heads.crf import LinearChainCrf
from downstream.texts.tag_sequences import bio_labels, find_bad_tag

LABELS = bio_labels(["A", "B"])  # O, B-A, I-A, B-B, I-B


def field(constrained: bool, seed: int = 0) -> LinearChainCrf:
    torch.manual_seed(seed)
    crf = LinearChainCrf(LABELS, constrained).double()
    for parameter in crf.parameters():
        parameter.data.normal_()
    return crf


Scores = dict[tuple[int, ...], float]


def enumerated(crf: LinearChainCrf, emissions: Tensor, constrained: bool) -> Scores:
    """Return the score of every allowed sequence of one sentence (words, labels)."""
    scores = {}
    for path in itertools.product(range(len(LABELS)), repeat=len(emissions)):
        tags = [LABELS[i] for i in path]
        if constrained and find_bad_tag(tags, "bio") is not None:
            continue
        total = crf.start[path[0]] + crf.end[path[-1]]
        total = total + sum(emissions[t, label] for t, label in enumerate(path))
        total = total + sum(crf.transitions[a, b] for a, b in itertools.pairwise(path))
        scores[path] = total.item()
    return scores


@pytest.mark.parametrize("constrained", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_equals_enumeration(constrained: bool, seed: int) -> None:
    crf = field(constrained, seed)
    lengths = [4, 1, 3]
    emissions = 3 * torch.randn(3, 4, len(LABELS), dtype=torch.float64)
    mask = torch.arange(4) < torch.tensor(lengths)[:, None]
    partitions = crf.log_partition(emissions, mask)
    paths = crf.best_paths(emissions, mask)
    for i, length in enumerate(lengths):
        scores = enumerated(crf, emissions[i, :length], constrained)
        total = math.log(math.fsum(map(math.exp, scores.values())))
        assert partitions[i].item() == pytest.approx(total, abs=1e-9)
        best = max(scores, key=scores.__getitem__)
        assert tuple(paths[i, :length].tolist()) == best
        for path in list(scores)[:: max(1, len(scores) // 7)]:
            tags = torch.full((3, 4), -1)
            tags[i, :length] = torch.tensor(path)
            likelihood = crf.log_likelihood(emissions, tags, mask)[i]
            assert likelihood.item() == pytest.approx(scores[path] - total, abs=1e-9)


def test_gradients_are_those_of_the_enumeration() -> None:
    crf = field(constrained=True)
    emissions = torch.randn(1, 3, len(LABELS), dtype=torch.float64, requires_grad=True)
    crf.log_partition(emissions, torch.ones(1, 3, dtype=torch.bool)).sum().backward()
    scores = enumerated(crf, emissions.detach()[0], constrained=True)
    total = math.fsum(map(math.exp, scores.values()))
    marginals = torch.zeros(3, len(LABELS), dtype=torch.float64)
    for path, score in scores.items():
        for t, label in enumerate(path):
            marginals[t, label] += math.exp(score) / total
    assert emissions.grad is not None
    torch.testing.assert_close(emissions.grad[0], marginals)
    assert crf.transitions.grad is not None
    assert torch.isfinite(crf.transitions.grad).all()
    assert not crf.transitions.grad[~crf.may_follow].any()


def test_extreme_scores_give_finite_losses_and_gradients() -> None:
    crf = LinearChainCrf(LABELS, constrained=True)
    emissions = torch.full((1, 6, len(LABELS)), -200.0)
    emissions[..., 2] = 200.0  # I-A, which may not start a sentence
    emissions.requires_grad_()
    tags, mask = torch.zeros(1, 6, dtype=torch.int64), torch.ones(1, 6, dtype=torch.bool)
    loss = -crf.log_likelihood(emissions, tags, mask).mean()
    loss.backward()
    assert torch.isfinite(loss)
    assert emissions.grad is not None
    assert torch.isfinite(emissions.grad).all()


@pytest.mark.parametrize("trained", [True, False])
def test_paths_are_legal(trained: bool) -> None:
    torch.manual_seed(0)
    crf = LinearChainCrf(LABELS, constrained=True, trained=trained)
    emissions = 5 * torch.randn(200, 9, len(LABELS))
    paths = crf.best_paths(emissions, torch.ones(200, 9, dtype=torch.bool))
    for path in paths.tolist():
        assert find_bad_tag([LABELS[i] for i in path], "bio") is None
    assert not dict(crf.named_parameters()) or trained


def test_without_constraints_and_transitions_each_word_is_independent() -> None:
    torch.manual_seed(0)
    crf = LinearChainCrf(("NOUN", "VERB", "X"), constrained=False, trained=False)
    emissions = torch.randn(5, 4, 3)
    mask = torch.ones(5, 4, dtype=torch.bool)
    torch.testing.assert_close(crf.best_paths(emissions, mask), emissions.argmax(dim=2))
    expected = emissions.logsumexp(dim=2).sum(dim=1)
    torch.testing.assert_close(crf.log_partition(emissions, mask), expected)
