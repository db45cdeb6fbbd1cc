"""Measurements: products, training steps, launches and synchronizations, embedding."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from bilm.commands.gpu_checks.rows import TOLERANCES, Figure, Setting
from bilm.commands.gpu_checks.runs import require_training, write_zipf_corpus
from bilm.embedding.embedder import Embedder
from bilm.model.language_model import BiLm
from bilm.model.precision import Precision, precision_context
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.training.config import Config, load_config
from bilm.training.step_operations import StepShape, count_operations

LAUNCHES = (
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cudaGraphLaunch",
)
SYNCHRONIZATIONS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")

MAX_LAUNCHES, MAX_SYNCHRONIZATIONS = 900, 2  # of a step

ROWS = 128
VOCABULARY = 100_000
WARM_UP, TIMED = 3, 10  # steps

QUICK = [
    "model.characters.filters=[[1,8],[3,24]]",
    "model.lstm.dim=32",
    "model.lstm.projection_dim=16",
    "model.softmax.num_negatives=32",
    "data.unroll_steps=5",
]


class Calls(NamedTuple):
    """What the host asked the device to do."""

    launches: int
    synchronizations: int
    operators: int


def product_peak(setting: Setting, precision: Precision) -> Figure:
    """Measure the rate of large matrix products."""
    setting.require(precision)
    size = 256 if setting.is_quick else 8192
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    a = torch.randn(size, size, device=setting.device).to(dtype)
    with precision_context(setting.device, precision):
        seconds = _seconds(lambda: a @ a, setting, repeats=2 if setting.is_quick else 20)
    setting.peaks[precision] = 2 * size**3 / seconds
    return Figure(f"{setting.peaks[precision] / 1e12:.3g} TFLOPS, {size} x {size}")


def step_time(setting: Setting, name: str, precision: Precision) -> Figure:
    """Measure training steps of a shipped configuration, with DeepSpeed and the optimizer."""
    setting.require(precision)
    require_training(setting)
    config = _step_config(setting, name, precision)
    with _steps(config) as step:
        for _ in range(1 if setting.is_quick else WARM_UP):
            step()
        seconds = _seconds(step, setting, repeats=1 if setting.is_quick else TIMED)
    words = config.deepspeed.train_batch_size * config.data.unroll_steps
    text = f"{seconds * 1e3:.1f} ms, {words / seconds:,.0f} words/s"
    if precision in setting.peaks:
        shape = StepShape.of(config, _num_types(setting), 0.0, 1)
        flops = sum(operation.product_flops for operation in count_operations(config, shape))
        share = flops / seconds / setting.peaks[precision]
        text += f", {share:.0%} of the measured product peak"
    return Figure(text)


def launches(setting: Setting, name: str) -> Figure:
    """Count the launches and synchronizations of a training step."""
    require_training(setting)
    with _steps(_step_config(setting, name, "float32")) as step:
        for _ in range(1 if setting.is_quick else WARM_UP):
            step()
        nothing, counted = (_profile(function) for function in (lambda: None, step))
    if setting.device.type != "cuda":
        operators = counted.operators - nothing.operators
        return Figure(f"{operators:,} operators; launches are counted on CUDA devices only")
    if not counted.launches:
        raise RuntimeError("the profiler has recorded no launches; it may not be permitted to")
    launches = counted.launches - nothing.launches
    waits = counted.synchronizations - nothing.synchronizations
    return Figure(
        f"{launches:,} launches, {waits:,} synchronizations",
        f"{MAX_LAUNCHES}, {MAX_SYNCHRONIZATIONS}",
        launches <= MAX_LAUNCHES and waits <= MAX_SYNCHRONIZATIONS,
    )


def embedding(setting: Setting, name: str, precision: Precision) -> Figure:
    """Measure the embedder, and compare some of its vectors with those of the CPU."""
    setting.require(precision)
    torch.manual_seed(0)
    config = load_config(name, QUICK if setting.is_quick else [])
    pretrained = PretrainedBiLm(BiLm(config.model, None).eval())
    sentences = _sentences(6 if setting.is_quick else 5000)
    embedder = Embedder(pretrained, device=setting.device, precision=precision)
    embedder.embed(sentences[:100])
    started = time.monotonic()
    arrays = embedder.embed(sentences)
    seconds = time.monotonic() - started
    expected = Embedder(pretrained, device="cpu").embed(sentences[:4])
    pairs = zip(arrays[:4], expected, strict=True)
    difference = float(np.max([np.abs(a - b).max() for a, b in pairs]))  # NaN if one is NaN
    words, limit = sum(map(len, sentences)), TOLERANCES[precision]
    text = f"{words / seconds:,.0f} words/s, {difference:.1e} from the CPU"
    return Figure(text, f"{limit:g}", difference <= limit)


def count_calls(names: Iterable[str]) -> Calls:
    """Count the events of a profile by their names."""
    listed = list(names)
    return Calls(
        sum(name in LAUNCHES for name in listed),
        sum(name in SYNCHRONIZATIONS for name in listed),
        sum(name.startswith("aten::") for name in listed),
    )


def _profile(function: Callable[[], object]) -> Calls:
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler:
        function()
    return count_calls(event.name for event in profiler.events())


def _num_types(setting: Setting) -> int:
    return 300 if setting.is_quick else VOCABULARY


def _step_config(setting: Setting, name: str, precision: Precision) -> Config:
    num_words = 4000 if setting.is_quick else 500_000
    corpus = write_zipf_corpus(setting.directory / "corpus", _num_types(setting), num_words)
    overrides = [
        f"data.corpus={corpus}",
        f"train.output_dir={tempfile.mkdtemp(dir=setting.directory)}",
        f"train.precision={precision}",
        f"deepspeed.train_batch_size={8 if setting.is_quick else ROWS}",
    ]
    return load_config(name, overrides + (QUICK if setting.is_quick else []))


@contextmanager
def _steps(config: Config) -> Iterator[Callable[[], object]]:
    """Yield a function that takes one training step, each on the next batch.

    As in a run, it reads the losses of the step before.
    """
    from bilm.training.model_inputs import read_inputs
    from bilm.training.setup import prepare
    from bilm.training.step import PendingStep, finish_step, take_step

    with prepare(config, fresh=True) as run, closing(read_inputs(run.parts, 0)) as inputs:
        pending: list[PendingStep] = []

        def step() -> None:
            pending.append(take_step(run.parts, run.state, next(inputs)))
            if len(pending) > 1:
                finish_step(run.parts, pending.pop(0))

        yield step


def _seconds(function: Callable[[], object], setting: Setting, repeats: int) -> float:
    """Return the mean time of a call, after one call that is not measured."""
    function()
    _wait(setting)
    started = time.monotonic()
    for _ in range(repeats):
        function()
    _wait(setting)
    return (time.monotonic() - started) / repeats


def _wait(setting: Setting) -> None:
    if setting.device.type != "cpu":
        torch.accelerator.synchronize(setting.device)


def _sentences(count: int) -> list[list[str]]:
    generator = np.random.default_rng(0)
    lengths = generator.integers(3, 40, count)
    return [[f"w{i:x}" for i in generator.zipf(1.3, length) % 50_000] for length in lengths]
