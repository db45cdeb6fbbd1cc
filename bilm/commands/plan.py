"""`bilm plan`: the resources that a run will need.

Reads only the configuration and `corpus.json`. All figures are computed from the shapes; the hours
also require a measured throughput. Memory is that of the algorithm, without the memory of the
libraries (a process with torch and DeepSpeed starts at about 0.4 GB).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from bilm.corpus.global_batch import RankShare
from bilm.corpus.manifest import MANIFEST_FILE, TRAIN, read_manifest
from bilm.errors import ConfigError, CorpusError
from bilm.model.language_model import DIRECTIONS, BiLm, shape_only_model
from bilm.training.config import Config
from bilm.training.optimizers import STATE_NAMES

FLOAT32_BYTES, INT64_BYTES = 4, 8

PLANNED_RANKS = (1, 8, 64)


@dataclass(frozen=True)
class Traffic:
    """The bytes that one rank sends per step."""

    dense: float
    sparse: float


@dataclass(frozen=True)
class RanksPlan:
    """The figures of one rank, for a number of ranks that divides the rows equally."""

    rows: int
    memory_bytes: float
    traffic: Traffic
    hours: float | None  # of the whole run; None without a measured throughput


@dataclass(frozen=True)
class Plan:
    """The size, length and resources of a run."""

    config: Config
    parameters: dict[str, int]  # by part of the model
    words: int
    sentences: int
    unknown_words: int
    steps: int
    checkpoint_bytes: int
    num_checkpoints: int  # that may exist at the same time
    by_ranks: dict[int, RanksPlan | None]  # None if the ranks cannot share the rows equally


def make_plan(config: Config, words_per_second: float | None = None) -> Plan:
    """Compute the plan of a run; `words_per_second` is the measured throughput of one rank."""
    if words_per_second is not None and not (0 < words_per_second < math.inf):
        raise ConfigError(f"--words-per-second is {words_per_second}; it must be above 0")
    path = Path(config.data.corpus) / MANIFEST_FILE
    if not path.is_file():
        raise CorpusError(f"{path} does not exist; build the corpus first, or set data.corpus")
    manifest = read_manifest(path)
    train = manifest.splits[TRAIN]
    predictions = train.words + train.sentences
    parameters = _parameter_counts(shape_only_model(config.model, manifest.vocabulary_size))
    rows, unroll = config.deepspeed.train_batch_size, config.data.unroll_steps
    steps = math.ceil(math.ceil(predictions / rows) / unroll) * config.train.num_epochs
    steps = min(steps, config.train.max_steps or steps)
    num_states = len(STATE_NAMES[config.train.optimizer.name])
    return Plan(
        config=config,
        parameters=parameters,
        words=train.words,
        sentences=train.sentences,
        unknown_words=train.unknown_words,
        steps=steps,
        checkpoint_bytes=sum(parameters.values()) * FLOAT32_BYTES * (1 + num_states),
        # besides the last ones, the best one and the one that is being written
        num_checkpoints=config.train.checkpoints.keep_last + 2,
        by_ranks={
            world: _plan_ranks(config, parameters, world, steps, words_per_second)
            for world in PLANNED_RANKS
        },
    )


def _plan_ranks(
    config: Config,
    parameters: dict[str, int],
    world: int,
    steps: int,
    words_per_second: float | None,
) -> RanksPlan | None:
    rows = config.deepspeed.train_batch_size
    share = RankShare(world=world, accumulation=config.deepspeed.gradient_accumulation_steps)
    if not share.divides(rows):
        return None
    hours = None
    if words_per_second is not None:
        predictions = steps * rows * config.data.unroll_steps
        hours = predictions / (words_per_second * world) / 3600
    return RanksPlan(
        rows=rows // world,
        memory_bytes=memory_bytes(config, parameters, world),
        traffic=traffic(config, parameters, world),
        hours=hours,
    )


def memory_bytes(config: Config, parameters: dict[str, int], world: int) -> float:
    """Return the memory of a rank: weights, gradients, optimizer and activations for backward."""
    num_states = len(STATE_NAMES[config.train.optimizer.name])
    table = parameters["softmax"]
    others = sum(parameters.values()) - table
    is_sampled = config.model.softmax.kind == "sampled"
    weights = (others + table) * _stored_share(config, world, 3)
    gradients = (others + (0 if is_sampled else table)) * _stored_share(config, world, 2)
    optimizer = (others + table) * num_states * _stored_share(config, world, 1)
    rows = config.deepspeed.train_batch_size / world / config.deepspeed.gradient_accumulation_steps
    slots = rows * config.data.unroll_steps * config.model.num_directions
    lstm = config.model.lstm
    # Per slot and layer: four gates, cell and its tanh, output; plus one product of gates.
    kept = slots * lstm.num_layers * (4 * lstm.dim + 3 * lstm.dim + 3 * lstm.projection_dim)
    if is_sampled:
        size = table // (lstm.projection_dim + 1)
        negatives = min(size, config.model.softmax.num_negatives)
        kept += 2 * slots * negatives  # probabilities, and their gradients in backward
    return FLOAT32_BYTES * (weights + gradients + optimizer + kept)


def _stored_share(config: Config, world: int, from_stage: int) -> float:
    """Return the share that each rank stores of what ZeRO partitions from `from_stage` on."""
    return 1 / world if config.deepspeed.zero_optimization.stage >= from_stage else 1.0


def traffic(config: Config, parameters: dict[str, int], world: int) -> Traffic:
    """Return the bytes that a rank sends per step.

    Dense gradients are sent by a ring all-reduce. For a sampled softmax, each rank sends the rows
    of its negatives and targets with their ids; they are counted as if all of them were distinct,
    which is the maximum.
    """
    if world == 1:
        return Traffic(0.0, 0.0)
    table = parameters["softmax"]
    dense = float(sum(parameters.values()))
    sparse = 0.0
    if config.model.softmax.kind == "sampled":
        dense -= table
        width = config.model.lstm.projection_dim + 1
        size = table // width
        slots = config.deepspeed.train_batch_size / world * config.data.unroll_steps
        rows = config.model.num_directions * (slots + config.model.softmax.num_negatives)
        sparse = min(float(size), rows) * (width * FLOAT32_BYTES + 2 * INT64_BYTES)
    return Traffic(2 * (world - 1) / world * dense * FLOAT32_BYTES, sparse)


def _parameter_counts(model: BiLm) -> dict[str, int]:
    counts = {"token encoder": sum(p.numel() for p in model.encoder.parameters())}
    for d, name in enumerate(DIRECTIONS[: model.config.num_directions]):
        counts[f"{name} LSTMs"] = sum(p.numel() for p in model.bilstm.stacks[d].parameters())
    assert model.softmax is not None
    encoder = {id(p) for p in model.encoder.parameters()}  # may be tied to the softmax
    own = [p for p in model.softmax.parameters() if id(p) not in encoder]
    counts["softmax"] = sum(p.numel() for p in own)
    return counts


def format_plan(plan: Plan) -> str:
    """Return the plan as text."""
    config, all_parameters = plan.config, sum(plan.parameters.values())
    rows, unroll = config.deepspeed.train_batch_size, config.data.unroll_steps
    checkpoint = plan.checkpoint_bytes
    lines = [
        "Parameters",
        *(f"  {name:<22}{count:>16,}" for name, count in plan.parameters.items()),
        f"  {'all':<22}{all_parameters:>16,}",
        "Reading",
        f"  {plan.words:,} words in {plan.sentences:,} sentences: "
        f"{plan.words + plan.sentences:,} predictions per direction and epoch; "
        f"{plan.unknown_words / max(1, plan.words):.2%} unknown words",
        f"  {config.train.num_epochs} epochs, {rows} rows x {unroll} words per step: "
        f"{plan.steps:,} steps",
        "Disk",
        f"  {_size(checkpoint)} per checkpoint, {_size(checkpoint * plan.num_checkpoints)} for the "
        f"{plan.num_checkpoints} that may exist at the same time, "
        f"{_size(all_parameters * FLOAT32_BYTES)} for the exported model",
        "By number of ranks",
        "  ranks   rows each   memory each   sent per step   of that dense, sparse      hours",
    ]
    lines += [_format_ranks(config, world, ranks) for world, ranks in plan.by_ranks.items()]
    if all(ranks is None or ranks.hours is None for ranks in plan.by_ranks.values()):
        lines.append("  (for hours, pass the measured --words-per-second of one rank)")
    return "\n".join(lines)


def _format_ranks(config: Config, world: int, ranks: RanksPlan | None) -> str:
    if ranks is None:
        parts = world * config.deepspeed.gradient_accumulation_steps
        rows = config.deepspeed.train_batch_size
        return f"  {world:>5}   {rows} rows cannot be divided into {parts} equal parts"
    dense, sparse = ranks.traffic.dense, ranks.traffic.sparse
    hours = "-" if ranks.hours is None else f"{ranks.hours:,.1f}"
    return (
        f"  {world:>5}{ranks.rows:>12}{_size(ranks.memory_bytes):>14}{_size(dense + sparse):>16}"
        f"{_size(dense):>15}, {_size(sparse):<10}{hours:>8}"
    )


def _size(num_bytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if num_bytes < 1000 or unit == "TB":
            return f"{num_bytes:.1f} {unit}" if unit != "B" else f"{num_bytes:.0f} B"
        num_bytes /= 1000
    raise AssertionError
