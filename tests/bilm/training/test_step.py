from __future__ import annotations

import pytest
import torch

from bilm.model.language_model import BiLm, training_objective
from bilm.training.step import StepInspector, StepReport
from tests.bilm.model.test_language_model import ROWS, VOCABULARY, batch
from tests.conftest import tiny_model_config


def test_inspector_measures_update_ratios() -> None:
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


def test_step_report_packs_and_unpacks_for_any_number_of_ranks() -> None:
    one = StepReport(torch.tensor([1.5, 2.5]), torch.tensor(7.0), torch.tensor(0.0))
    two = StepReport(torch.tensor([0.5, 4.0]), torch.tensor(8.0), torch.tensor(1.0))
    packed = one.pack()
    assert packed.tolist() == [1.5, 2.5, 7.0, 0.0]
    assert packed.dtype == torch.float64
    reports = StepReport.unpack(torch.stack([packed, two.pack()]))
    assert reports.loss_sums.tolist() == [[1.5, 2.5], [0.5, 4.0]]
    assert reports.predictions.tolist() == [7.0, 8.0]
    assert reports.flags.tolist() == [0.0, 1.0]
