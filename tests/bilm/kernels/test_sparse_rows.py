"""Row-wise updates compared with PyTorch's optimizers on dense gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from bilm.training.optimizers import RowAdagrad, RowAdam

WORDS, DIM = 40, 6


def sparse(ids: list[int], rows: Tensor) -> Tensor:
    return torch.sparse_coo_tensor(
        torch.tensor([ids]), rows, (WORDS, rows.shape[1]), check_invariants=True
    )


def build(kind: type, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    if issubclass(kind, torch.optim.Adagrad):
        return kind(parameters, lr=0.2, initial_accumulator_value=1.0, eps=0.0, fused=True)
    return kind(parameters, lr=0.05, betas=(0.8, 0.95), eps=1e-8, fused=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("row_wise", "dense"), [(RowAdagrad, torch.optim.Adagrad), (RowAdam, torch.optim.Adam)]
)
def test_same_rows_at_every_step_equal_dense_optimizer(
    backend: str, row_wise: type, dense: type, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    start, other = torch.randn(WORDS, DIM, dtype=dtype), torch.randn(3, dtype=dtype)
    table, weight = nn.Parameter(start.clone()), nn.Parameter(other.clone())
    dense_table, dense_weight = nn.Parameter(start.clone()), nn.Parameter(other.clone())
    optimizer, reference = (
        build(row_wise, [table, weight]),
        build(dense, [dense_table, dense_weight]),
    )
    for _ in range(5):
        rows = torch.randn(4, DIM, dtype=dtype)
        table.grad = sparse([3, 39, 0, 17], rows)
        dense_table.grad = table.grad.to_dense()
        weight.grad = torch.randn(3, dtype=dtype)
        dense_weight.grad = weight.grad.clone()
        optimizer.step()
        reference.step()
        assert table.grad is not None  # restored for the caller
    tolerance = 2e-6 if dtype == torch.float32 else 1e-14
    torch.testing.assert_close(table, dense_table, rtol=0, atol=tolerance)
    torch.testing.assert_close(weight, dense_weight, rtol=0, atol=0)
    for name, value in reference.state[dense_table].items():
        torch.testing.assert_close(optimizer.state[table][name], value, rtol=0, atol=tolerance)


def test_adagrad_with_changing_rows_equals_dense_optimizer(backend: str) -> None:
    torch.manual_seed(1)
    start = torch.randn(WORDS, DIM)
    table, dense_table = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    optimizer, reference = build(RowAdagrad, [table]), build(torch.optim.Adagrad, [dense_table])
    for step in range(6):
        table.grad = sparse([step, step + 5, step, 20], torch.randn(4, DIM))  # one row twice
        dense_table.grad = table.grad.to_dense()
        optimizer.step()
        reference.step()
    torch.testing.assert_close(table, dense_table, rtol=0, atol=1e-6)
    assert torch.equal(table[30:], start[30:])


def test_adam_does_not_change_rows_without_gradient(backend: str) -> None:
    torch.manual_seed(2)
    table = nn.Parameter(torch.randn(WORDS, DIM))
    optimizer = build(RowAdam, [table])
    table.grad = sparse([1, 2], torch.randn(2, DIM))
    optimizer.step()
    after, state = table.detach().clone(), optimizer.state[table]
    moments = [state[name].clone() for name in ("exp_avg", "exp_avg_sq")]
    table.grad = sparse([2, 5], torch.randn(2, DIM))
    optimizer.step()
    changed = (table != after).any(dim=1).nonzero().flatten().tolist()
    assert changed == [2, 5]
    for before, name in zip(moments, ("exp_avg", "exp_avg_sq"), strict=True):
        assert (state[name] != before).any(dim=1).nonzero().flatten().tolist() == [2, 5]
    assert state["step"].item() == 2
