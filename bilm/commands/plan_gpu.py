"""The part of `bilm plan` about GPUs (`--gpu`)."""

from __future__ import annotations

from bilm.commands.plan import Plan, RanksPlan
from bilm.errors import ConfigError
from bilm.model.precision import Precision
from bilm.training.gpu_plan import (
    BANDWIDTH_SHARE,
    LAUNCH_SECONDS,
    LINK_SHARE,
    PRODUCT_SHARE,
    GpuEstimate,
    estimate,
)
from bilm.training.gpus import GPUS, PRECISIONS, Gpu
from bilm.training.memory import ModelSize

MAX_LINKED_RANKS = 8  # GPUs of one machine; the network between machines is not in the table


def find_gpu(name: str) -> Gpu:
    """Return a GPU of the table."""
    if name not in GPUS:
        raise ConfigError(f"--gpu is {name!r}; it must be one of: {', '.join(GPUS)}")
    return GPUS[name]


def format_gpu_plan(plan: Plan, gpu: Gpu) -> str:
    """Return estimates for one GPU and for the GPUs of one machine, at each precision."""
    lines = [
        f"On {gpu.name}: {gpu.memory} GB at {gpu.bandwidth:,.0f} GB/s, {gpu.link_name} at "
        f"{gpu.link:g} GB/s ({gpu.source})",
        f"  Estimates, not measured: {PRODUCT_SHARE:.0%} of the peak rate of products, "
        f"{BANDWIDTH_SHARE:.0%} of the bandwidth,",
        f"  {LINK_SHARE:.0%} of the link, {LAUNCH_SECONDS * 1e6:.0f} us per launch.",
        "  ranks  precision  TFLOPS   arithmetic   traffic  launches  exchange     step"
        "      words/s  memory each",
    ]
    for world, ranks in plan.by_ranks.items():
        if ranks is None or world > MAX_LINKED_RANKS:
            continue
        for precision in PRECISIONS:
            lines.append(_format_row(plan, gpu, precision, world, ranks))
    return "\n".join(lines)


def estimate_ranks(
    plan: Plan, gpu: Gpu, precision: Precision, world: int, ranks: RanksPlan
) -> GpuEstimate | None:
    """Return the estimate of a rank; None if the GPU does not support the precision."""
    softmax = plan.parameters["softmax"]
    others = sum(plan.parameters.values()) - softmax
    size = ModelSize(softmax, others, plan.text.vocabulary_size)
    return estimate(plan.config, size, gpu, precision, world, ranks.traffic.payload)


def _format_row(plan: Plan, gpu: Gpu, precision: Precision, world: int, ranks: RanksPlan) -> str:
    start = f"  {world:>5}  {precision:<9}"
    figures = estimate_ranks(plan, gpu, precision, world, ranks)
    if figures is None:
        return f"{start}  not available on this GPU"
    time = figures.time
    row = (
        f"{start}{gpu.peak(precision):>8g}{_ms(time.arithmetic):>13}{_ms(time.traffic):>10}"
        f"{_ms(time.launches):>10}{_ms(time.exchange):>10}{_ms(time.seconds):>9}"
        f"{figures.words_per_second:>13,.0f}{figures.memory / 1e9:>10.1f} GB"
    )
    if figures.fits(gpu):
        return row
    return (
        f"{row}\n         WARNING: {figures.memory / 1e9:.1f} GB do not fit into {gpu.memory} GB; "
        "use more ranks or increase deepspeed.gradient_accumulation_steps"
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"
