from __future__ import annotations

import pytest
import torch
from torch import nn

from bilm.kernels.sparse_rows import clip_gradients
from bilm.training.config import OptimizerConfig
from bilm.training.optimizers import build_optimizer, has_fused, learning_rate_at


def parameters() -> tuple[nn.Parameter, nn.Parameter]:
    dense, table = nn.Parameter(torch.zeros(3, 4)), nn.Parameter(torch.zeros(6, 2))
    dense.grad = torch.full((3, 4), 2.0)
    # Row 4 occurs twice; its gradient is the sum.
    rows = [[3.0, 0.0], [1.0, 1.0], [2.0, -5.0]]
    table.grad = torch.sparse_coo_tensor([[1, 4, 4]], rows, (6, 2), check_invariants=True)
    return dense, table


@pytest.mark.parametrize("max_norm", [1.0, 5.0, 1000.0, None])
def test_clips_by_one_norm_of_dense_and_sparse_gradients(max_norm: float | None) -> None:
    dense, table = parameters()
    assert table.grad is not None
    flat = torch.cat([dense.grad.flatten(), table.grad.to_dense().flatten()])  # type: ignore[union-attr]
    norm = clip_gradients([dense, table], max_norm)
    assert norm.item() == pytest.approx(flat.norm().item())
    scale = min(1.0, max_norm / flat.norm().item()) if max_norm else 1.0
    assert table.grad.is_sparse
    clipped = torch.cat([dense.grad.flatten(), table.grad.to_dense().flatten()])  # type: ignore[union-attr]
    torch.testing.assert_close(clipped, flat * scale)


def test_zero_gradients_stay_zero() -> None:
    weight = nn.Parameter(torch.zeros(2))
    weight.grad = torch.zeros(2)
    assert clip_gradients([weight, nn.Parameter(torch.zeros(1))], 10.0).item() == 0.0
    assert weight.grad.tolist() == [0.0, 0.0]


def test_adagrad_equals_published_update() -> None:
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(0.5)
    optimizer = build_optimizer(OptimizerConfig(), model.parameters())
    model.weight.grad = torch.full((1, 1), 3.0)
    optimizer.step()
    assert model.weight.item() == pytest.approx(0.5 - 0.2 * 3.0 / (1.0 + 9.0) ** 0.5, abs=1e-7)


@pytest.mark.parametrize(
    ("decay", "expected"),
    [
        ("none", [0.1, 0.2, 0.2, 0.2, 0.2, 0.2]),
        ("linear", [0.1, 0.2, 0.2, 0.15, 0.1, 0.05]),
        ("cosine", [0.1, 0.2, 0.2, 0.1707107, 0.1, 0.0292893]),
        ("inverse_sqrt", [0.1, 0.2, 0.2, 0.1632993, 0.1414214, 0.1264911]),
    ],
)
def test_learning_rate_follows_schedule(decay: str, expected: list[float]) -> None:
    config = OptimizerConfig.model_validate({"warmup_steps": 2, "decay": decay})
    rates = [learning_rate_at(config, step, 6) for step in range(6)]
    assert rates == pytest.approx(expected)


@pytest.mark.parametrize("name", ["adagrad", "adam", "adamw"])
def test_fused_optimizers_are_used_where_they_exist(name: str) -> None:
    assert has_fused(name, "cpu")
    assert not has_fused(name, "hpu")  # a device without them in this build of PyTorch
