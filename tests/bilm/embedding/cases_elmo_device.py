"""`Elmo` and `Scorer` on the second device: the results of the CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bilm import Elmo, Scorer
from bilm.embedding.embedder import StateMode
from tests.bilm.embedding.elmo_models import SENTENCES, tiny
from tests.second_device.device import counting, second_device


@pytest.fixture
def device() -> str:
    return second_device()


@pytest.mark.parametrize("state", ["reset", "warm", "carry"])
def test_frozen_weights_move_with_the_module(device: str, state: StateMode) -> None:
    expected, elmo = (Elmo(tiny(), 2, dropout=0.0, state=state) for _ in range(2))
    elmo(SENTENCES)
    expected(SENTENCES)
    elmo.to(device)  # a carried state is moved when it is used
    outputs, mask = elmo(SENTENCES)
    assert {x.device.type for x in (*outputs, mask, *elmo.model.parameters())} == {device}
    for ours, other in zip(outputs, expected(SENTENCES).outputs, strict=True):
        torch.testing.assert_close(ours.cpu(), other, atol=1e-6, rtol=1e-6)
    elmo.to("cpu")
    torch.testing.assert_close(
        elmo(SENTENCES).outputs, expected(SENTENCES).outputs, atol=1e-6, rtol=1e-6
    )


def test_prepared_batches_need_no_synchronization(device: str) -> None:
    elmo = Elmo(tiny(), dropout=0.0).to(device)
    batch = elmo.prepare(SENTENCES)
    elmo(batch)
    with counting() as counts:
        elmo(batch)
    assert counts.synchronizations == {}
    on_device = batch.to(device)
    torch.testing.assert_close(elmo(on_device).outputs, elmo(batch).outputs)


def test_scores_equal_those_of_the_cpu(device: str) -> None:
    ours, expected = Scorer(tiny(), device=device), Scorer(tiny(), device="cpu")
    for one, other in zip(ours.score(SENTENCES), expected.score(SENTENCES), strict=True):
        np.testing.assert_allclose(one.surprisals, other.surprisals, atol=1e-5)
        np.testing.assert_allclose(one.boundaries, other.boundaries, atol=1e-5)
    found = [x.substitutes(SENTENCES[:2], [1, 0], 20, "forward") for x in (ours, expected)]
    for one, other in zip(*found, strict=True):
        by_word = dict(other)
        assert {pair.word: pytest.approx(pair.probability, abs=1e-5) for pair in one} == by_word


def test_fine_tuning_equals_that_of_the_cpu(device: str) -> None:
    gradients = []
    for name in ("cpu", device):
        elmo = Elmo(tiny(), trainable=True, dropout=0.0).to(name)
        elmo(SENTENCES).outputs[0].square().sum().backward()
        gradients.append([w.grad.cpu() for w in elmo.parameters() if w.grad is not None])
    torch.testing.assert_close(*gradients, atol=1e-4, rtol=1e-4)
    assert len(gradients[0]) == len(list(elmo.parameters()))
