"""The estimate of step time and efficiency on several machines, from link speed and compute time.

A step takes its compute time, plus the part of the exchange that is not hidden behind it. At ZeRO
stage 0, dense gradients are sent in buckets as the backward pass completes them; everything else is
sent when nothing is computed. `benchmarks/links.py` compares these times with real runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from bilm.corpus.global_batch import RankShare
from bilm.distributed.dense_exchange import BUCKET_BYTES
from bilm.errors import ConfigError
from bilm.training.config import Config
from bilm.training.memory import FLOAT32_BYTES
from bilm.training.traffic import Traffic, traffic

BACKWARD_SHARE = 2 / 3  # of the compute time: two products for each one of the forward pass

HOP_SECONDS = 20e-6  # from one machine to the next, in addition to the bytes; an assumption

USEFUL_EFFICIENCY = 0.5

_UNITS = {"Mbit": 1e6, "Gbit": 1e9}


@dataclass(frozen=True)
class Link:
    """The connection of each machine to the others."""

    bits_per_second: float  # in each direction
    ranks_per_machine: int = 1
    local_bytes_per_second: float = math.inf  # between the ranks of a machine

    def machines(self, world: int) -> int:
        """Return the number of machines of `world` ranks."""
        return math.ceil(world / self.ranks_per_machine)

    def seconds(self, num_bytes: float, world: int) -> float:
        """Return the time in which each of `world` ranks sends `num_bytes` to the next one.

        The ring leaves each machine once, so its link carries what one rank sends.
        """
        local = num_bytes / self.local_bytes_per_second if self.ranks_per_machine > 1 else 0.0
        if self.machines(world) == 1:
            return local
        return max(local, 8 * num_bytes / self.bits_per_second)


@dataclass(frozen=True)
class Work:
    """What a step computes and exchanges."""

    config: Config
    parameters: dict[str, int]  # counts by module
    compute_seconds: Callable[[Config, int], float]  # of a rank, given the number of ranks


@dataclass(frozen=True)
class ScaledStep:
    """The estimate of a step on `world` ranks."""

    world: int
    rows: int  # of the global batch
    words: int  # of the global batch
    traffic: Traffic
    compute: float  # seconds
    exchange: float  # seconds, also of what is hidden
    seconds: float

    @property
    def words_per_second(self) -> float:
        """The throughput of all ranks."""
        return self.words / self.seconds


def parse_rate(text: str) -> float:
    """Return the bits per second of a text such as `100Mbit`, `2.5Gbit` or `200Gbit`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(Mbit|Gbit)", text, re.ASCII)
    if match is None or float(match[1]) == 0:
        raise ConfigError(
            f"--link is {text!r}; it must be a number above 0 followed by Mbit or Gbit (per "
            "second), without a space, such as 100Mbit or 10Gbit"
        )
    return float(match[1]) * _UNITS[match[2]]


def scale_step(work: Work, link: Link, world: int, rows: int | None = None) -> ScaledStep:
    """Return the estimate for `world` ranks and a global batch of `rows` (default: configured)."""
    config = work.config
    if rows is not None:
        batch = config.deepspeed.model_copy(update={"train_batch_size": rows})
        config = config.model_copy(update={"deepspeed": batch})
    sent = traffic(config, work.parameters, world)
    compute = work.compute_seconds(config, world)
    exchange, seconds = step_seconds(config, sent, link, world, compute)
    num_rows = config.deepspeed.train_batch_size
    words = num_rows * config.data.unroll_steps
    return ScaledStep(world, num_rows, words, sent, compute, exchange, seconds)


def step_seconds(
    config: Config, sent: Traffic, link: Link, world: int, compute: float
) -> tuple[float, float]:
    """Return the seconds of the whole exchange, and those of the step."""
    if world == 1:
        return 0.0, compute
    headers = 1 + sent.headers / sent.payload
    round_seconds = HOP_SECONDS * (link.machines(world) if link.machines(world) > 1 else 0)
    dense = link.seconds(sent.dense * headers, world)
    # Ids, targets and reports are gathered; the rows of the negatives are reduced.
    others = link.seconds((sent.payload - sent.dense) * headers, world)
    others += round_seconds * (5 if sent.sparse else 1)
    if config.deepspeed.zero_optimization.stage > 0:
        return dense + others, compute + dense + others
    num_buckets = count_buckets(config, sent, world)
    per_bucket = dense / num_buckets + 2 * round_seconds
    end = 0.0
    for bucket in range(num_buckets):
        is_complete = compute * (1 - BACKWARD_SHARE * (1 - (bucket + 1) / num_buckets))
        end = max(end, is_complete) + per_bucket
    return per_bucket * num_buckets + others, max(end, compute) + others


def count_buckets(config: Config, sent: Traffic, world: int) -> int:
    """Return the number of buckets of `bilm.distributed.dense_exchange`, of equal sizes."""
    value_bytes = 2 if config.deepspeed.communication_data_type == "bf16" else FLOAT32_BYTES
    gradients = sent.dense / (2 * (world - 1) / world) / value_bytes * FLOAT32_BYTES
    return max(1, math.ceil(gradients / BUCKET_BYTES))


def largest_useful_ranks(work: Work, link: Link) -> int:
    """Return the largest number of ranks whose efficiency is at least `USEFUL_EFFICIENCY`.

    Only full machines count, and only numbers of ranks that divide the global batch.
    """
    rows = work.config.deepspeed.train_batch_size
    accumulation = work.config.deepspeed.gradient_accumulation_steps
    one = scale_step(work, link, link.ranks_per_machine)
    useful = link.ranks_per_machine
    for world in range(2 * useful, rows + 1, link.ranks_per_machine):
        if RankShare(0, world, accumulation).divides(rows):
            step = scale_step(work, link, world)
            if efficiency(step, one, link) >= USEFUL_EFFICIENCY:
                useful = world
    return useful


def efficiency(step: ScaledStep, one: ScaledStep, link: Link) -> float:
    """Return the throughput of a step, relative to that of as many machines like `one`."""
    return step.words_per_second / (one.words_per_second * step.world / link.ranks_per_machine)
