"""Estimates of the step time and memory of a rank on a GPU.

The step time is a roofline: each operation takes the longer of its arithmetic at the attainable
share of the GPU's peak and its traffic at the attainable share of the bandwidth. The host launches
kernels ahead of the GPU, so a step takes the longer of all operations and all launches, and then
the exchange between ranks, which is not overlapped. None of this has been measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bilm.model.precision import Precision
from bilm.training.config import Config
from bilm.training.gpus import Gpu
from bilm.training.memory import (
    FLOAT32_BYTES,
    GAPS,
    ModelSize,
    distinct_words,
    full_softmax_values,
    stored_share,
    stored_states,
)
from bilm.training.optimizers import STATE_NAMES
from bilm.training.step_operations import Operation, StepShape, count_launches, count_operations

PRODUCT_SHARE = 0.75  # of the peak rate, attainable by large products
BANDWIDTH_SHARE = 0.8
LINK_SHARE = 0.7  # of the link in one direction
LAUNCH_SECONDS = 8e-6  # of the host, from Python

CONTEXT_BYTES = 1.0e9  # of the driver, the kernels and the libraries on the GPU

PRODUCT_BYTES: dict[Precision, int] = {"float32": 4, "tf32": 4, "bfloat16": 2}


@dataclass(frozen=True)
class StepTime:
    """The parts of the time of a step, in seconds."""

    arithmetic: float
    traffic: float
    device: float  # the sum over operations of the longer of the two
    launches: float
    exchange: float

    @property
    def seconds(self) -> float:
        """The time of the step."""
        return max(self.device, self.launches) + self.exchange


@dataclass(frozen=True)
class GpuEstimate:
    """The estimate for a rank at one precision."""

    time: StepTime
    words_per_second: float  # of all ranks
    memory: float  # bytes of a rank

    def fits(self, gpu: Gpu) -> bool:
        """Return whether the rank fits into the GPU's memory."""
        return self.memory <= gpu.memory * 1e9


def estimate(
    config: Config, size: ModelSize, gpu: Gpu, precision: Precision, world: int, sent: float
) -> GpuEstimate | None:
    """Return the estimate for one of `world` ranks, each of which sends `sent` bytes per step.

    Returns None if the GPU does not support the precision.
    """
    peak = gpu.peak(precision)
    if peak is None:
        return None
    product_bytes = PRODUCT_BYTES[precision]
    shape = StepShape.of(config, size.vocabulary, dense_parameters(config, size), world)
    operations = count_operations(config, shape, product_bytes)
    time = _step_time(operations, gpu, peak, count_launches(config, shape), sent)
    words = config.deepspeed.train_batch_size * config.data.unroll_steps
    return GpuEstimate(
        time=time,
        words_per_second=words / time.seconds,
        memory=_memory(config, size, world, product_bytes),
    )


def dense_parameters(config: Config, size: ModelSize) -> float:
    """Return the number of parameters with dense gradients."""
    return size.others + (0 if config.model.softmax.kind == "sampled" else size.softmax)


def _step_time(
    operations: Sequence[Operation], gpu: Gpu, peak: float, launches: int, sent: float
) -> StepTime:
    arithmetic = [
        o.product_flops / (peak * 1e12 * PRODUCT_SHARE)
        + o.flops / (gpu.float32 * 1e12 * PRODUCT_SHARE)
        for o in operations
    ]
    traffic = [o.traffic / (gpu.bandwidth * 1e9 * BANDWIDTH_SHARE) for o in operations]
    return StepTime(
        arithmetic=sum(arithmetic),
        traffic=sum(traffic),
        device=sum(map(max, zip(arithmetic, traffic, strict=True))),
        launches=launches * LAUNCH_SECONDS,
        exchange=sent / (gpu.link / 2 * 1e9 * LINK_SHARE),
    )


def _memory(config: Config, size: ModelSize, world: int, product_bytes: int) -> float:
    """Return the bytes that a rank needs on its GPU.

    Checkpoints are copied to the host. The largest of the needs of a step and of an evaluation is
    added to what is always there.
    """
    parameters = size.softmax + size.others
    num_states = len(STATE_NAMES[config.train.optimizer.name])
    always = parameters * stored_share(config, world, 3)
    always += num_states * stored_states(config, size, world)
    dense = dense_parameters(config, size)
    gradients = dense * stored_share(config, world, 2)
    copy = dense if world > 1 else 0.0  # of the gradients, in one buffer for the exchange
    step = FLOAT32_BYTES * (gradients + copy) + _activations(config, size, world, product_bytes)
    slots = config.train.evaluation.rows / world * config.data.unroll_steps
    slots *= config.model.num_directions
    evaluation = FLOAT32_BYTES * full_softmax_values(slots, size.vocabulary)
    return CONTEXT_BYTES + GAPS * (FLOAT32_BYTES * always + max(step, evaluation))


def _activations(config: Config, size: ModelSize, world: int, product_bytes: int) -> float:
    """Return the bytes that one micro-batch keeps for backward, and needs in it."""
    model, lstm = config.model, config.model.lstm
    rows = config.deepspeed.train_batch_size / world / config.deepspeed.gradient_accumulation_steps
    words = rows * config.data.unroll_steps
    slots = words * model.num_directions
    # Gates, hidden vectors, inputs, outputs and their gradients; cells, skip and dropped inputs.
    lower = slots * (5 * lstm.dim + 4 * lstm.projection_dim)
    upper = slots * (lstm.dim + 4 * lstm.projection_dim)
    weights = model.num_directions * 9 * lstm.dim * lstm.projection_dim
    kept = lstm.num_layers * (
        lower * product_bytes + upper * FLOAT32_BYTES + weights * product_bytes
    )
    if model.characters is not None:
        per_filter = 3 + 3 * model.characters.num_highway
        distinct = distinct_words(words, size.vocabulary)
        kept += FLOAT32_BYTES * distinct * model.characters.num_filters * per_filter
    if model.softmax.kind == "sampled":
        return kept + FLOAT32_BYTES * 2 * slots * min(size.vocabulary, model.softmax.num_negatives)
    return kept + FLOAT32_BYTES * full_softmax_values(slots, size.vocabulary)
