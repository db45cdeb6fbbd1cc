from __future__ import annotations

import pytest
import torch

from bilm.model.language_model import BiLm, training_objective
from bilm.training.step import StepInspector
from tests.bilm.model.test_language_model import ROWS, VOCABULARY, batch
from tests.conftest import tiny_model_config


def test_ratios_are_those_of_the_update() -> None:
    torch.manual_seed(0)
    model = BiLm(tiny_model_config(), VOCABULARY).train()
    sums, _ = model(*batch(model), model.zero_state(ROWS), model.draw_negatives((0,)))
    training_objective(sums, ROWS).backward()
    inspector = StepInspector(model)
    assert inspector.histograms["gradients/softmax.weight"].shape[0] < VOCABULARY
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.01)
    ratios = inspector.update_ratios()
    assert set(ratios) == {
        "encoder",
        "lstm_forward_0",
        "lstm_forward_1",
        "lstm_backward_0",
        "lstm_backward_1",
        "softmax",
    }
    assert all(ratio == pytest.approx(0.01, rel=1e-3) for ratio in ratios.values())
