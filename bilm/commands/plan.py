"""`launch/pretrain.py --plan`: what a run will need, before anything is started.

Reads the configuration and `corpus.json`, nothing else. All figures follow from shapes; the hours
need a measured speed. Memory is what the algorithm holds, without what libraries keep for
themselves (a process with torch and DeepSpeed starts at about 0.4 GB).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import torch

from bilm.corpus.global_batch import RankShare
from bilm.corpus.manifest import MANIFEST_FILE, read_manifest
from bilm.errors import ConfigError, CorpusError
from bilm.model.language_model import DIRECTIONS, BiLm
from bilm.training.config import Config
from bilm.training.optimizers import STATE_NAMES

BYTES = 4  # of a float32

WORLDS = (1, 8, 64)


def plan(config: Config, words_per_second: float | None = None) -> str:
    """The plan as text."""
    if words_per_second is not None and not (0 < words_per_second < math.inf):
        raise ConfigError(f"--words-per-second is {words_per_second}; it must be above 0")
    path = Path(config.data.corpus) / MANIFEST_FILE
    if not path.is_file():
        raise CorpusError(
            f"there is no {path}; build the corpus first, or set data.corpus to where it is"
        )
    manifest = read_manifest(path)
    train = manifest.splits["train"]
    predictions = train.words + train.sentences
    with torch.device("meta"):
        model = BiLm(config.model, manifest.vocabulary_size)
    counts = _parameter_counts(model)
    rows, unroll = config.deepspeed.train_batch_size, config.data.unroll_steps
    steps = math.ceil(math.ceil(predictions / rows) / unroll) * config.train.num_epochs
    steps = min(steps, config.train.max_steps or steps)
    lines = ["Parameters", *(f"  {name:<22}{count:>16,}" for name, count in counts.items())]
    lines += [f"  {'all':<22}{sum(counts.values()):>16,}"]
    lines += ["Reading"]
    lines += [
        f"  {train.words:,} words in {train.sentences:,} sentences: {predictions:,} predictions "
        f"each way an epoch; {train.unknown_words / max(1, train.words):.2%} unknown words",
        f"  {config.train.num_epochs} epochs, {rows} rows x {unroll} words a step: {steps:,} steps",
    ]
    states = len(STATE_NAMES[config.train.optimizer.name])
    weights = sum(counts.values()) * BYTES
    checkpoint = weights * (1 + states)
    kept = config.train.checkpoints.keep_last + 2  # the best one, and the one being written
    lines += [
        "Disk",
        f"  {_size(checkpoint)} a checkpoint, {_size(checkpoint * kept)} for the {kept} that may "
        f"exist at once, {_size(weights)} for the exported model",
        "By number of ranks",
        "  ranks   rows each   memory each   sent each step   of that dense, sparse      hours",
    ]
    for world in WORLDS:
        lines.append(_line(config, counts, world, steps, words_per_second))
    if words_per_second is None:
        lines.append("  (hours: give the measured --words-per-second of one rank)")
    return "\n".join(lines)


def _line(
    config: Config, counts: dict[str, int], world: int, steps: int, words_per_second: float | None
) -> str:
    rows = config.deepspeed.train_batch_size
    share = RankShare(world=world, accumulation=config.deepspeed.gradient_accumulation_steps)
    if not share.divides(rows):
        parts = world * share.accumulation
        return f"  {world:>5}   {rows} rows cannot be shared by {parts} parts equally"
    dense, sparse = traffic(config, counts, world)
    hours = "-"
    if words_per_second is not None:
        predictions = steps * rows * config.data.unroll_steps
        hours = f"{predictions / (words_per_second * world) / 3600:,.1f}"
    return (
        f"  {world:>5}{rows // world:>12}{_size(memory(config, counts, world)):>14}"
        f"{_size(dense + sparse):>17}{_size(dense):>14}, {_size(sparse):<10}{hours:>8}"
    )


def memory(config: Config, counts: dict[str, int], world: int) -> float:
    """Bytes that a rank holds: weights, gradients, optimiser and what backward needs."""
    stage = config.deepspeed.zero_optimization.stage
    states = len(STATE_NAMES[config.train.optimizer.name])
    table = counts["softmax"]
    others = sum(counts.values()) - table
    is_sampled = config.model.softmax.kind == "sampled"
    share: Callable[[int], float] = lambda from_stage: 1 / world if stage >= from_stage else 1.0  # noqa: E731
    weights = (others + table) * share(3)
    gradients = (others + (0 if is_sampled else table)) * share(2)
    optimizer = (others + table) * states * share(1)
    rows = config.deepspeed.train_batch_size / world / config.deepspeed.gradient_accumulation_steps
    slots = rows * config.data.unroll_steps * config.model.num_directions
    lstm = config.model.lstm
    # Per slot and layer: four gates, cell and its tanh, output; plus one product of gates.
    kept = slots * lstm.num_layers * (4 * lstm.dim + 3 * lstm.dim + 3 * lstm.projection_dim)
    if is_sampled:
        size = table // (lstm.projection_dim + 1)
        negatives = min(size, config.model.softmax.num_negatives)
        kept += 2 * slots * negatives  # probabilities, and in backward their gradients
    return BYTES * (weights + gradients + optimizer + kept)


def traffic(config: Config, counts: dict[str, int], world: int) -> tuple[float, float]:
    """Bytes that a rank sends a step, dense and sparse.

    Dense gradients by a ring all-reduce. Of the softmax, each rank sends the rows of its negatives
    and targets (counted as all distinct, which is the most) with their ids.
    """
    if world == 1:
        return 0.0, 0.0
    table = counts["softmax"]
    dense = float(sum(counts.values()))
    rows_sent = 0.0
    if config.model.softmax.kind == "sampled":
        dense -= table
        width = config.model.lstm.projection_dim + 1
        size = table // width
        slots = config.deepspeed.train_batch_size / world * config.data.unroll_steps
        directions = config.model.num_directions
        rows_sent = min(float(size), directions * (slots + config.model.softmax.num_negatives)) * (
            width * BYTES + 2 * 8
        )
    return 2 * (world - 1) / world * dense * BYTES, rows_sent


def _parameter_counts(model: BiLm) -> dict[str, int]:
    counts = {"token encoder": sum(p.numel() for p in model.encoder.parameters())}
    for d, name in enumerate(DIRECTIONS[: model.config.num_directions]):
        counts[f"{name} LSTMs"] = sum(p.numel() for p in model.bilstm.stacks[d].parameters())
    assert model.softmax is not None
    own = [
        p for p in model.softmax.parameters() if not any(p is q for q in model.encoder.parameters())
    ]
    counts["softmax"] = sum(p.numel() for p in own)
    return counts


def _size(num_bytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if num_bytes < 1000 or unit == "TB":
            return f"{num_bytes:.1f} {unit}" if unit != "B" else f"{num_bytes:.0f} B"
        num_bytes /= 1000
    raise AssertionError
