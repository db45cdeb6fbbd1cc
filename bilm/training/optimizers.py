"""The optimizers, and the learning rate of a step.

Adagrad and Adam update a table with a sparse gradient only in the rows of that gradient. The
softmax of a step uses a few thousand rows of a table of hundreds of thousands; memory and time
depend on those rows. For Adagrad the result is exact: a row without a gradient would not change.
Adam becomes "lazy": the two moments of a row decay only in the steps in which it has a gradient.
Weights with dense gradients are updated by torch's own code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from bilm.kernels.sparse_rows import (
    AdamStep,
    Moments,
    adagrad_rows,
    adam_rows,
    distinct_rows,
)
from bilm.training.config import OptimizerConfig


class RowAdagrad(torch.optim.Adagrad):
    """torch's Adagrad, by rows where a gradient is sparse."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Update every weight that has a gradient."""
        assert closure is None
        tables = _take_sparse_gradients(self)
        super().step()
        for table, grad, group in tables:
            state = self.state[table]
            state["step"] += 1
            rows = distinct_rows(grad)
            with _undo_if(getattr(self, "found_inf", None), rows.ids, table.data, state["sum"]):
                adagrad_rows(table.data, state["sum"], rows, group["lr"], group["eps"])
            table.grad = grad


class RowAdam(torch.optim.Adam):
    """torch's Adam, lazy and by rows where a gradient is sparse."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Update every weight that has a gradient."""
        assert closure is None
        tables = _take_sparse_gradients(self)
        super().step()
        for table, grad, group in tables:
            state = self.state[table]
            if "exp_avg" not in state:
                state["step"] = torch.tensor(0.0)
                state["exp_avg"] = torch.zeros_like(table)
                state["exp_avg_sq"] = torch.zeros_like(table)
            # On the CPU, because its value is read at every step.
            state["step"] = state["step"].cpu() + 1
            moments = Moments(state["exp_avg"], state["exp_avg_sq"])
            step = AdamStep(int(state["step"]), group["lr"], group["betas"], group["eps"])
            rows = distinct_rows(grad)
            with _undo_if(getattr(self, "found_inf", None), rows.ids, table.data, *moments):
                adam_rows(table.data, moments, rows, step)
            table.grad = grad


@contextmanager
def _undo_if(condition: Tensor | None, ids: Tensor, *tables: Tensor) -> Iterator[None]:
    """Restore the rows `ids` of the tables after the block if `condition` is 1, on the device.

    `found_inf`, PyTorch's name for the condition, has this effect in its own fused optimizers.
    """
    if condition is None:
        yield
        return
    before = [table[ids] for table in tables]
    yield
    for table, rows in zip(tables, before, strict=True):
        table.index_copy_(0, ids, torch.where(condition > 0, rows, table[ids]))


def _take_sparse_gradients(
    optimizer: torch.optim.Optimizer,
) -> list[tuple[Tensor, Tensor, dict[str, Any]]]:
    """Remove the sparse gradients, and return them with their weights and parameter groups."""
    taken = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None and parameter.grad.is_sparse:
                taken.append((parameter, parameter.grad, group))
                parameter.grad = None
    return taken


# The tensors that each optimizer stores per weight, in the shape of the weight.
STATE_NAMES = {
    "adagrad": ("sum",),
    "adam": ("exp_avg", "exp_avg_sq"),
    "adamw": ("exp_avg", "exp_avg_sq"),
}


def build_optimizer(
    config: OptimizerConfig, parameters: Iterable[nn.Parameter]
) -> torch.optim.Optimizer:
    """Return the published Adagrad (its sums of squares start above zero), Adam, or AdamW.

    All dense weights are updated in one fused call where PyTorch has it for their
    device; on the CPU this is five times as fast as torch's default. Tables with sparse gradients
    are updated by row, which AdamW does not support.
    """
    parameters = list(parameters)
    is_fused = has_fused(config.name, parameters[0].device.type)
    if config.name == "adagrad":
        return RowAdagrad(
            parameters,
            lr=config.learning_rate,
            initial_accumulator_value=config.initial_accumulator,
            eps=config.epsilon,
            fused=is_fused,
        )
    kind = RowAdam if config.name == "adam" else torch.optim.AdamW
    return kind(
        parameters,
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.epsilon,
        weight_decay=config.weight_decay,
        fused=is_fused,
    )


def has_fused(name: str, device_type: str) -> bool:
    """Return whether PyTorch has a fused optimizer for the device (older releases: not Adagrad)."""
    key = torch._C._dispatch_key_for_device(device_type)
    return torch._C._dispatch_has_computed_kernel_for_dispatch_key(f"aten::_fused_{name}_", key)


def learning_rate_at(config: OptimizerConfig, step: int, num_steps: int) -> float:
    """Return the learning rate of a step: a pure function, so no state has to be saved."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    if config.decay == "none":
        return config.learning_rate
    since = step - config.warmup_steps
    if config.decay == "inverse_sqrt":
        start = max(1, config.warmup_steps)
        return config.learning_rate * math.sqrt(start / (start + since))
    done = since / max(1, num_steps - config.warmup_steps)
    if config.decay == "linear":
        return config.learning_rate * (1.0 - done)
    return config.learning_rate * 0.5 * (1.0 + math.cos(math.pi * done))
