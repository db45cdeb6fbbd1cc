"""The operators and synchronizations of one training step with the structure of configs/big.json.

With Triton's interpreter the kernels really run. What the interpreter itself does on the device is
not counted; each launch counts as one operator.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bilm.errors import DivergedError
from bilm.kernels import backends
from bilm.kernels.triton_ops import availability
from bilm.model.devices import HostBuffers
from bilm.training import step as step_module
from bilm.training.config import Config, load_config
from bilm.training.loop import Run
from bilm.training.model_inputs import read_inputs
from bilm.training.setup import prepare
from bilm.training.step import PendingStep, finish_step, take_step
from tests.conftest import ROOT
from tests.launch.launching import build_demo_corpus
from tests.second_device import device
from tests.second_device.training import use_second_device

MAX_OPERATORS = 900
COPIED_INPUTS = 10  # words, indices, targets, and seven tensors of the sampled softmax
SMALL = {
    "model.characters.filters": [[width, 4] for width in range(1, 8)],
    "model.lstm.dim": 16,
    "model.lstm.projection_dim": 8,
    "model.softmax.num_negatives": 20,
    "deepspeed.train_batch_size": 4,
}


without_interpreter = pytest.mark.skipif(
    availability.is_interpreted(), reason="the interpreter is slow, and computes on the CPU"
)


@dataclass
class StepCounts:
    operators: Counter[str] = field(default_factory=Counter)
    synchronizations: Counter[str] = field(default_factory=Counter)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    use_second_device()
    return build_demo_corpus(tmp_path_factory.mktemp("demo"))


@pytest.fixture
def run(corpus: Path, tmp_path: Path) -> Iterator[Run]:
    with prepare(small_config(corpus, tmp_path / "run"), fresh=True) as run:
        yield run


def small_config(corpus: Path, output: Path) -> Config:
    overrides = {**SMALL, "data.corpus": str(corpus), "train.output_dir": str(output)}
    values = [f"{key}={json.dumps(value)}" for key, value in overrides.items()]
    config = load_config(ROOT / "configs" / "big.json", values)
    assert config.data.unroll_steps == 20
    return config


def take_steps(run: Run, count: int) -> list[PendingStep]:
    """Launch steps without reading their values."""
    source, pending = read_inputs(run.parts, run.state.progress.step), []
    for _ in range(count):
        pending.append(take_step(run.parts, run.state, next(source)))
        run.state.progress = run.state.progress.after_step()
    source.close()
    return pending


def count_step(run: Run, monkeypatch: pytest.MonkeyPatch) -> StepCounts:
    """Count the fourth step: the copies for the fifth, its launches, the values of the third.

    The timer of DeepSpeed, which is off, would wait for the device from its third step on.
    """
    with monkeypatch.context() as patched:  # the interpreter would take minutes for these steps
        patched.setattr(backends, "requested", lambda: "torch")
        *_, last = take_steps(run, 3)
    source = read_inputs(run.parts, 3)
    next(source)
    inputs, total = next(source), StepCounts()
    extension = device._extension()

    def note() -> None:
        operators, synchronizations = extension.counts()
        total.operators.update(operators)
        total.synchronizations.update(synchronizations)
        extension.reset()

    if availability.available():
        from tests.bilm.kernels.triton_ops.calls import MODULES

        launch = MODULES[0].launch

        def counted(kernel: Any, *arguments: Any, **constants: Any) -> None:
            note()
            launch(kernel, *arguments, **constants)
            extension.reset()
            total.operators["launch"] += 1

        for module in MODULES:
            monkeypatch.setattr(module, "launch", counted)
    extension.reset()
    next(source)
    take_step(run.parts, run.state, inputs)
    finish_step(run.parts, last)
    note()
    source.close()
    return total


def test_step_is_within_its_budget(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = count_step(run, monkeypatch)
    print(counts.operators.total(), "operators:", counts.operators)
    assert counts.synchronizations == {"event": 1}  # the values of the step before
    assert counts.operators["copy to device on a side stream"] == COPIED_INPUTS
    assert counts.operators["copy to device"] == 0
    assert counts.operators["wait for event"] == 1
    assert counts.operators["aten::record_stream"] == COPIED_INPUTS
    assert counts.operators["copy to host"] == 1
    if availability.available():
        assert counts.operators["launch"] > 100
        assert counts.operators.total() <= MAX_OPERATORS


@without_interpreter
def test_budget_includes_values_that_are_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    objective = step_module.training_objective

    def waiting(losses: Tensor, rows: int) -> Tensor:
        losses.sum().item()
        return objective(losses, rows)

    monkeypatch.setattr(step_module, "training_objective", waiting)
    assert count_step(run, monkeypatch).synchronizations == {"item": 1, "event": 1}


class HostTensors(TorchDispatchMode):
    """Collect the operators that create a tensor on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        inputs = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        made = [x for x in tree_leaves(result) if isinstance(x, Tensor) and x.is_cpu]
        if made and not any(x.is_cpu for x in inputs):
            self.names.append(func.overloadpacket.__name__)
        return result


@without_interpreter
def test_step_creates_no_tensor_on_the_cpu(run: Run) -> None:
    inputs = next(read_inputs(run.parts, 0))
    with HostTensors() as tensors:
        take_step(run.parts, run.state, inputs)
    assert tensors.names == ["empty"]  # receives the values that are read late


@without_interpreter
def test_ranks_without_a_log_read_the_values_of_an_inspected_step_too(
    corpus: Path, tmp_path: Path
) -> None:
    """Otherwise rank 0 would react to a stop request one step before the others."""
    config = small_config(corpus, tmp_path / "run")
    log = config.train.log.model_copy(update={"every_steps": 100, "histograms_every_steps": 2})
    section = config.train.model_copy(update={"log": log})
    with prepare(config.model_copy(update={"train": section}), fresh=True) as run:
        run.log = None
        assert not run._are_values_due()
        run.state.progress = run.state.progress.after_step()
        assert run._are_values_due()


def weights_of(run: Run) -> dict[str, Tensor]:
    engine = run.parts.engine
    return {**engine.weights(HostBuffers()), **engine.optimizer_state(HostBuffers())}


@without_interpreter
@pytest.mark.parametrize("name", ["adagrad", "adam"])
def test_updates_nothing_after_a_loss_that_is_not_finite(
    name: str, corpus: Path, tmp_path: Path
) -> None:
    config = small_config(corpus, tmp_path / "run")
    update = {"name": name, "epsilon": 1e-8}
    section = config.train.model_copy(
        update={"optimizer": config.train.optimizer.model_copy(update=update)}
    )
    config = config.model_copy(update={"train": section})
    with prepare(config, fresh=True) as run:
        start = weights_of(run)
        good = take_steps(run, 1)
        before = weights_of(run)
        assert any(not torch.equal(start[key], before[key]) for key in start)
        zeros = run.state.lstm
        run.state.lstm = zeros._replace(hidden=torch.full_like(zeros.hidden, torch.nan))
        bad = take_steps(run, 1)
        run.state.lstm = zeros  # the losses of the next step are finite again
        later = take_steps(run, 1)
        after = weights_of(run)
        assert all(torch.equal(before[key], after[key]) for key in before)
        assert finish_step(run.parts, good[0]).sums.steps == 1
        with pytest.raises(DivergedError, match="the loss of step 2 on rank 0 is"):
            finish_step(run.parts, bad[0])
        assert finish_step(run.parts, later[0]).sums.steps == 1
