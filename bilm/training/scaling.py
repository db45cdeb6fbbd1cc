"""The estimate of step time and efficiency on several machines, from link speed and compute time.

A step takes its compute time, plus the part of the exchange that is not hidden behind it. At ZeRO
stage 0, rows of the softmax are sent when the backward pass starts, and dense gradients in buckets
as it completes them. At the other stages nothing is assumed to be hidden. `benchmarks/links.py`
compares these times with real runs.
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
    exchange, seconds = step_seconds(work, sent, link, world, compute)
    num_rows = config.deepspeed.train_batch_size
    words = num_rows * config.data.unroll_steps
    return ScaledStep(world, num_rows, words, sent, compute, exchange, seconds)


def step_seconds(
    work: Work, sent: Traffic, link: Link, world: int, compute: float
) -> tuple[float, float]:
    """Return the seconds of the whole exchange, and those of the step."""
    if world == 1:
        return 0.0, compute
    machines = link.machines(world)
    round_seconds = HOP_SECONDS * machines if machines > 1 else 0.0

    def seconds(payload: float, rounds: int) -> float:
        headers = sent.headers / sent.payload
        return link.seconds(payload * (1 + headers), world) + rounds * round_seconds

    # A reduction goes around the ring twice. Ids are sent before the step, reports after backward.
    visible = seconds(sent.ids + sent.reports, 2 if sent.ids else 1)
    rows = seconds(sent.negatives + sent.targets, 3) if sent.sparse else 0.0
    if work.config.deepspeed.zero_optimization.stage > 0:
        exchange = visible + rows + seconds(sent.dense + sent.weights, 3)
        return exchange, compute + exchange
    exchange = visible + rows
    end, done = compute * (1 - BACKWARD_SHARE) + rows, 0.0
    for share in bucket_shares(work.config, work.parameters):
        done += share
        bucket = seconds(share * sent.dense, 2)
        end = max(end, compute * (1 - BACKWARD_SHARE * (1 - done))) + bucket
        exchange += bucket
    return exchange, max(end, compute) + visible


def bucket_shares(config: Config, parameters: dict[str, int]) -> list[float]:
    """Return the share of each part of the dense gradients, in the order in which they are sent.

    The gradients of a part are complete at the same time. Backward starts with the softmax, if it
    is not sampled, then the LSTMs of the last layer, and ends with the token encoder. Parts that
    fit into a bucket of `bilm.distributed.dense_exchange` together are sent together.
    """
    softmax, encoder = parameters["softmax"], parameters["token encoder"]
    num_lstms = config.model.num_directions * config.model.lstm.num_layers
    lstms = sum(parameters.values()) - softmax - encoder
    sizes = [lstms / num_lstms] * num_lstms + [float(encoder)]
    if config.model.softmax.kind != "sampled":
        sizes.insert(0, float(softmax))
    buckets = [0.0]
    for size in sizes:
        if buckets[-1] and (buckets[-1] + size) * FLOAT32_BYTES > BUCKET_BYTES:
            buckets.append(0.0)
        buckets[-1] += size
    return [bucket / sum(sizes) for bucket in buckets]


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
