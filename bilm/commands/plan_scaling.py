"""The part of `bilm plan` about several machines (`--ranks`, `--link`)."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields

from bilm.commands.plan import Plan, format_size
from bilm.corpus.global_batch import RankShare
from bilm.errors import ConfigError
from bilm.training.config import Config
from bilm.training.gpu_plan import LINK_SHARE, estimate
from bilm.training.gpus import Gpu
from bilm.training.memory import FLOAT32_BYTES, ModelSize
from bilm.training.scaling import (
    BACKWARD_SHARE,
    USEFUL_EFFICIENCY,
    Link,
    ScaledStep,
    Work,
    efficiency,
    largest_useful_ranks,
    parse_rate,
    scale_step,
)
from bilm.training.traffic import Traffic, traffic

MACHINES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class ScalingFlags:
    """The flags of the plan about several machines."""

    ranks: str | None
    link: str | None
    ranks_per_machine: int | None
    words_per_second: float | None

    def planned_ranks(self) -> tuple[int, ...]:
        """Return the numbers in `--ranks`; none without it."""
        if self.ranks is None:
            return ()
        if not re.fullmatch(r"[1-9]\d{0,5}(,[1-9]\d{0,5})*", self.ranks, re.ASCII):
            raise ConfigError(
                f"--ranks is {self.ranks!r}; it must be one or more numbers from 1 to 999999, "
                "separated by commas, such as 8 or 8,16,32"
            )
        return tuple(dict.fromkeys(map(int, self.ranks.split(","))))

    def make_link(self, gpu: Gpu | None) -> Link | None:
        """Return the link of each machine; None without `--link`."""
        if self.link is None:
            if self.ranks_per_machine is not None:
                raise ConfigError("--ranks-per-machine has no effect without --link; pass both")
            return None
        if self.words_per_second is None and gpu is None:
            raise ConfigError(
                "--link needs the speed of a rank; pass its measured --words-per-second, or --gpu "
                "for an estimate"
            )
        per_machine = 1 if self.ranks_per_machine is None else self.ranks_per_machine
        if per_machine < 1:
            raise ConfigError(f"--ranks-per-machine is {per_machine}; it must be at least 1")
        local = math.inf if gpu is None else gpu.link / 2 * 1e9 * LINK_SHARE
        return Link(parse_rate(self.link), per_machine, local)


def format_traffic(plan: Plan, ranks: tuple[int, ...]) -> str:
    """Return a table of the bytes that a rank sends, by kind."""
    kinds = [each.name for each in fields(Traffic)]
    names = [*kinds, "headers", "all"]
    lines = ["Sent by a rank per step", "   ranks" + "".join(f"{name:>11}" for name in names)]
    for world in ranks:
        sent = traffic(plan.config, plan.parameters, world)
        sizes = [*(getattr(sent, kind) for kind in kinds), sent.headers]
        cells = "".join(f"{format_size(size):>11}" for size in (*sizes, sum(sizes)))
        lines.append(f"  {world:>6}{cells}")
    return "\n".join(lines)


def format_scaling(plan: Plan, link: Link, flags: ScalingFlags, gpu: Gpu | None) -> str:
    """Return tables of step time and efficiency by number of machines, and the rates of reading."""
    work = Work(plan.config, plan.parameters, _Compute(plan, flags.words_per_second, gpu))
    per_machine, rows = link.ranks_per_machine, plan.config.deepspeed.train_batch_size
    rows_each = rows // per_machine
    one = _step_or_none(work, link, per_machine, rows)
    if one is None:
        share = RankShare(0, per_machine, plan.config.deepspeed.gradient_accumulation_steps)
        share.rows_per_batch(rows, "deepspeed.train_batch_size")
    assert one is not None
    worlds = flags.planned_ranks() or tuple(per_machine * count for count in MACHINES)
    lines = [
        f"Scaling on links of {link.bits_per_second / 1e9:g} Gbit/s per machine, "
        f"{per_machine} {'rank' if per_machine == 1 else 'ranks'} per machine (estimates)",
        f"                      batch of {rows} rows                  {rows_each} rows per rank",
        "  machines   ranks    compute  exchange      step  efficiency      step  efficiency"
        "      words/s",
    ]
    for world in worlds:
        strong = _step_or_none(work, link, world, rows)
        weak = scale_step(work, link, world, rows_each * world)
        lines.append(_format_row(link, one, strong, weak))
    lines += [
        f"  Up to {largest_useful_ranks(work, link)} ranks are useful for {rows} rows: each "
        f"machine has at least {USEFUL_EFFICIENCY:.0%} of the throughput of a single one.",
        _format_overlap(plan.config),
        _format_reading(plan, weak, link),
    ]
    return "\n".join(lines)


@dataclass(frozen=True)
class _Compute:
    """The compute time of a rank: from its measured throughput, or the estimate for a GPU."""

    plan: Plan
    words_per_second: float | None
    gpu: Gpu | None

    def __call__(self, config: Config, world: int) -> float:
        if self.words_per_second is not None:
            words = config.deepspeed.train_batch_size * config.data.unroll_steps
            return words / world / self.words_per_second
        assert self.gpu is not None
        softmax = self.plan.parameters["softmax"]
        others = sum(self.plan.parameters.values()) - softmax
        size = ModelSize(softmax, others, self.plan.text.vocabulary_size)
        precision = config.train.precision
        figures = estimate(config, size, self.gpu, precision, world, sent=0.0)
        if figures is None:
            raise ConfigError(
                f"train.precision is {precision!r}, which {self.gpu.name} does not support"
            )
        return figures.time.seconds


def _step_or_none(work: Work, link: Link, world: int, rows: int) -> ScaledStep | None:
    accumulation = work.config.deepspeed.gradient_accumulation_steps
    is_shared = RankShare(0, world, accumulation).divides(rows)
    return scale_step(work, link, world, rows) if is_shared else None


def _format_row(link: Link, one: ScaledStep, strong: ScaledStep | None, weak: ScaledStep) -> str:
    cells = f"{'cannot be divided':>43}"
    if strong is not None:
        times = (strong.compute, strong.exchange, strong.seconds)
        cells = " " + "".join(f"{_seconds(time):>10}" for time in times)
        cells += f"{efficiency(strong, one, link):>12.0%}"
    return (
        f"  {link.machines(weak.world):>8}{weak.world:>8}{cells}{_seconds(weak.seconds):>10}"
        f"{efficiency(weak, one, link):>12.0%}{weak.words_per_second:>13,.0f}"
    )


def _format_overlap(config: Config) -> str:
    stage = config.deepspeed.zero_optimization.stage
    if stage > 0:
        return f"  At ZeRO stage {stage}, nothing is assumed to be sent while a rank computes."
    return (
        "  Gradients are sent as soon as they are complete, during the backward pass "
        f"({BACKWARD_SHARE:.0%} of compute)."
    )


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.1f} ms"


def _format_reading(plan: Plan, step: ScaledStep, link: Link) -> str:
    """Return what machines read of the corpus: all of it once, then each rank its own rows."""
    word_bytes = FLOAT32_BYTES * (1 + plan.text.sentences / plan.text.words)  # ids and lengths
    rate = step.words_per_second * word_bytes
    return (
        f"  Corpus of {format_size(plan.text.words * word_bytes)}: each machine reads all of it "
        f"once to verify it, then {format_size(rate / link.machines(step.world))}/s; the "
        f"{link.machines(step.world)} machines of the last line {format_size(rate)}/s together."
    )
