"""One optimizer step: forward, backward, exchange between ranks, clipping and update.

Everything random in a step is a function of (seed, step): the negatives are the same on all ranks,
and the dropout masks belong to the rows of the global batch. The result therefore does not depend
on the number of ranks and micro-batches, except for rounding.
"""

from __future__ import annotations

import functools
import math
import operator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bilm.errors import DivergedError
from bilm.kernels.dropout import DropoutSeed
from bilm.kernels.sparse_rows import coalesced
from bilm.model.bilstm import BiLstmState
from bilm.model.language_model import training_objective
from bilm.training.late_values import LateValues
from bilm.training.optimizers import learning_rate_at
from bilm.training.run_parts import RunParts, RunState
from bilm.training.run_record import StepSums
from bilm.training.step_inputs import StepInputs

STOP, SAVE_FAILED = 1, 2  # bits of the flags in a report

MAX_PLACES = 5  # of sentences, in the message about a loss that is not finite


@dataclass(frozen=True)
class StepReport:
    """The values of a step that ranks exchange before anything is updated.

    The tensors of one rank have no leading dimension; those of all ranks start with (world,).
    """

    loss_sums: Tensor  # (..., directions)
    predictions: Tensor  # (...), of one direction
    flags: Tensor  # (...), sums of STOP and SAVE_FAILED

    def pack(self) -> Tensor:
        """Return the report as one tensor (..., directions + 2), rounded to float32."""
        columns = (self.loss_sums, self.predictions[..., None], self.flags[..., None])
        return torch.cat([column.float() for column in columns], dim=-1).double()

    @staticmethod
    def unpack(packed: Tensor) -> StepReport:
        """Return the report or reports in a tensor (..., directions + 2)."""
        return StepReport(packed[..., :-2], packed[..., -2], packed[..., -1])


@dataclass(frozen=True)
class PendingStep:
    """A step whose update has been launched; its values may not have been computed yet."""

    step: int  # number of finished steps before it
    values: LateValues  # the reports of all ranks, and the gradient norm
    inspector: StepInspector | None


@dataclass(frozen=True)
class StepResult:
    """The result of a step, the same on all ranks except for the inspector."""

    sums: StepSums  # of one step, whose time the caller adds
    stop: bool  # whether any rank was asked to stop
    save_failed: bool  # whether rank 0 could not write the latest checkpoint
    inspector: StepInspector | None


def take_step(
    parts: RunParts, state: RunState, inputs: StepInputs, inspect: bool = False
) -> PendingStep:
    """Train on the micro-batches of one step; `state.lstm` becomes the state after it.

    Nothing is updated from the first loss or gradient on that is not finite. On an accelerator this
    is a condition on the device, and `finish_step` raises the error.
    """
    engine, step = parts.engine, state.progress.step
    losses = _accumulate_gradients(parts, state, inputs)
    flags = STOP * (parts.stop.reason is not None) + SAVE_FAILED * parts.saves.has_failed
    # torch.full passes its value to the device without a copy.
    report = StepReport(
        losses,
        torch.full((), float(sum(b.num_predictions for b in inputs.batches)), device=losses.device),
        torch.full((), float(flags), device=losses.device),
    )
    gathered = parts.ranks.gather(report.pack())
    if not engine.reads_late:
        gathered = gathered.cpu()
        _check_finite(parts, step, StepReport.unpack(gathered).loss_sums)
    inspector = StepInspector(engine.model) if inspect else None
    rate = learning_rate_at(parts.config.train.optimizer, step, parts.num_steps)
    if engine.reads_late:
        norm = engine.step_if_finite(rate, StepReport.unpack(gathered).loss_sums)
    else:
        norm = torch.tensor(engine.step(rate), dtype=torch.float64)
    values = torch.cat([gathered.flatten(), norm.double().reshape(1)])
    return PendingStep(step, LateValues(values), inspector)


def finish_step(parts: RunParts, pending: PendingStep) -> StepResult:
    """Return the result of a step; raise an error if its losses or gradients are not finite."""
    values, step = pending.values.read(), pending.step
    reports = StepReport.unpack(values[:-1].view(parts.ranks.world, -1))
    _check_finite(parts, step, reports.loss_sums)
    norm = float(values[-1])
    if not math.isfinite(norm):
        raise DivergedError(f"the gradient norm of step {step + 1} is {norm}")
    limit = parts.config.train.max_gradient_norm
    sums = StepSums(
        losses=tuple(reports.loss_sums.sum(dim=0).tolist()),
        predictions=float(reports.predictions.sum()),
        gradient_norm=norm,
        clipped=float(limit is not None and norm > limit),
        steps=1.0,
    )
    flags = functools.reduce(operator.or_, (int(flag) for flag in reports.flags.tolist()))
    return StepResult(sums, bool(flags & STOP), bool(flags & SAVE_FAILED), pending.inspector)


def _accumulate_gradients(parts: RunParts, state: RunState, inputs: StepInputs) -> Tensor:
    """Run forward and backward on every micro-batch; return the loss sums (directions,)."""
    config, ranks, engine = parts.config, parts.ranks, parts.engine
    seed, step = config.train.seed, state.progress.step
    own_rows = state.lstm.cell.shape[2]
    rows = own_rows // len(inputs.batches)
    directions, device = config.model.num_directions, ranks.device
    sums, states = torch.zeros(directions, dtype=torch.float64, device=device), []
    for batch in inputs.batches:
        ids = (batch.words, batch.word_index, batch.targets)
        first = batch.micro * rows
        before = state.lstm.rows(first, first + rows)
        dropout_seed = DropoutSeed(seed, step, ranks.rank * own_rows + first)
        losses, after = engine(*ids, before, batch.sampled, dropout_seed)
        engine.backward(training_objective(losses, rows), inputs.rows)
        if batch is not inputs.batches[-1]:
            engine.next_micro_batch()
        sums += losses.detach().double()
        states.append(after.detach())
    state.lstm = BiLstmState.join_rows(states)
    return sums


def _check_finite(parts: RunParts, step: int, losses: Tensor) -> None:
    """Raise an error on all ranks if any of `losses` (world, directions) is not finite."""
    bad = torch.nonzero(~torch.isfinite(losses).all(dim=1)).flatten().tolist()
    if not bad:
        return
    rank = bad[0]
    rows = parts.config.deepspeed.train_batch_size // parts.ranks.world
    places = {
        str(place) for row in range(rows) for place in parts.stream.locate(step, rank * rows + row)
    }
    listed = "; ".join(sorted(places)[:MAX_PLACES])
    raise DivergedError(
        f"the loss of step {step + 1} on rank {rank} is {losses[rank].tolist()}; nothing was "
        f"updated. Its rows came from: {listed}" + (" ..." if len(places) > MAX_PLACES else "")
    )


class StepInspector:
    """Update-to-weight ratios by module, and histograms, of one step.

    It is created between backward and update, when both weights and gradients are available. In a
    table with sparse gradients, only the rows with a gradient are inspected. Cost: a copy of these
    weights.
    """

    def __init__(self, model: nn.Module) -> None:
        self._touched: dict[str, tuple[nn.Parameter, Tensor | None, Tensor]] = {}
        self.histograms: dict[str, Tensor] = {}
        for name, parameter in model.named_parameters():
            grad = parameter.grad
            if grad is None:
                continue
            rows = None
            if grad.is_sparse:
                grad = coalesced(grad)
                rows, grad = grad.indices()[0], grad.values()
            before = _rows_of(parameter, rows).clone()
            self._touched[name] = (parameter, rows, before)
            self.histograms[f"weights/{name}"] = before
            self.histograms[f"gradients/{name}"] = grad.clone()

    def update_ratios(self) -> dict[str, float]:
        """Return, after the update, the norm of the change over that of the weights, by module."""
        changes: dict[str, list[Tensor]] = {}
        weights: dict[str, list[Tensor]] = {}
        for name, (parameter, rows, before) in self._touched.items():
            module = _module_of(name)
            changes.setdefault(module, []).append((_rows_of(parameter, rows) - before).norm())
            weights.setdefault(module, []).append(before.norm())
        return {
            module: float(torch.stack(changes[module]).norm() / torch.stack(weights[module]).norm())
            for module in changes
            if float(torch.stack(weights[module]).norm()) > 0
        }


def _rows_of(parameter: nn.Parameter, rows: Tensor | None) -> Tensor:
    return parameter.detach() if rows is None else parameter.detach()[rows]


def _module_of(name: str) -> str:
    """Map `bilstm.stacks.0.1.weight` to `lstm_forward_1`, and other names to their first part."""
    parts = name.split(".")
    if parts[0] == "bilstm":
        return f"lstm_{('forward', 'backward')[int(parts[2])]}_{parts[3]}"
    return parts[0]
