"""`bilm plan`: the resources that a run will need.

Reads only the configuration and `corpus.json`, or takes the size of the text from flags. All
figures are computed from the shapes, except for the memory of the libraries, which is measured by
loading them. The hours also require a measured throughput.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bilm.corpus.global_batch import RankShare
from bilm.corpus.manifest import MANIFEST_FILE, TRAIN, read_manifest
from bilm.errors import ConfigError, CorpusError
from bilm.model.language_model import DIRECTIONS, BiLm, shape_only_model
from bilm.training.config import Config
from bilm.training.memory import (
    FLOAT32_BYTES,
    Memory,
    ModelSize,
    estimate_memory,
    loaded_libraries_bytes,
)
from bilm.training.optimizers import STATE_NAMES
from bilm.training.traffic import Traffic, traffic

PLANNED_RANKS = (1, 8, 64)

ASSUMED_SENTENCE_WORDS = 20


@dataclass(frozen=True)
class TextSize:
    """The size of the training split."""

    vocabulary_size: int
    words: int
    sentences: int
    unknown_words: int | None = None  # None before the corpus exists

    @classmethod
    def assumed(cls, vocabulary_size: int, words: int) -> TextSize:
        """Return the size of a text whose sentences have not been counted."""
        for flag, value in (("--vocabulary-size", vocabulary_size), ("--words", words)):
            if value < 1:
                raise ConfigError(f"{flag} is {value}; it must be at least 1")
        return cls(vocabulary_size, words, math.ceil(words / ASSUMED_SENTENCE_WORDS))

    @classmethod
    def of_corpus(cls, directory: Path) -> TextSize:
        """Read the size from `corpus.json`."""
        path = directory / MANIFEST_FILE
        if not path.is_file():
            raise CorpusError(
                f"{path} does not exist; build the corpus first, set data.corpus, or pass "
                "--vocabulary-size and --words"
            )
        manifest = read_manifest(path)
        train = manifest.splits[TRAIN]
        return cls(manifest.vocabulary_size, train.words, train.sentences, train.unknown_words)

    @property
    def predictions(self) -> int:
        """The number of predictions per direction and epoch."""
        return self.words + self.sentences


@dataclass(frozen=True)
class RanksPlan:
    """The figures of one rank, for a number of ranks that divides the rows equally."""

    rows: int
    memory: Memory
    traffic: Traffic
    hours: float | None  # of the whole run; None without a measured throughput


@dataclass(frozen=True)
class Plan:
    """The size, length and resources of a run."""

    config: Config
    parameters: dict[str, int]  # by part of the model
    text: TextSize
    steps: int
    checkpoint_bytes: int
    num_checkpoints: int  # that may exist at the same time
    by_ranks: dict[int, RanksPlan | None]  # None if the ranks cannot share the rows equally


def make_plan(
    config: Config,
    text: TextSize | None = None,
    words_per_second: float | None = None,
    ranks: Sequence[int] = (),
) -> Plan:
    """Compute the plan of a run on `text`, by default on the corpus of the configuration.

    `words_per_second` is the measured throughput of one rank. `ranks` are numbers of ranks that
    must be able to share the rows equally; by default some common numbers are planned.
    """
    for world in ranks:
        share = RankShare(0, world, config.deepspeed.gradient_accumulation_steps)
        share.rows_per_batch(config.deepspeed.train_batch_size, "deepspeed.train_batch_size")
    if words_per_second is not None and not (0 < words_per_second < math.inf):
        raise ConfigError(f"--words-per-second is {words_per_second}; it must be above 0")
    text = text or TextSize.of_corpus(Path(config.data.corpus))
    parameters = _parameter_counts(shape_only_model(config.model, text.vocabulary_size))
    rows, unroll = config.deepspeed.train_batch_size, config.data.unroll_steps
    steps = math.ceil(math.ceil(text.predictions / rows) / unroll) * config.train.num_epochs
    steps = min(steps, config.train.max_steps or steps)
    num_states = len(STATE_NAMES[config.train.optimizer.name])
    hours = None
    if words_per_second is not None:
        hours = steps * rows * unroll / words_per_second / 3600
    libraries = loaded_libraries_bytes()
    return Plan(
        config=config,
        parameters=parameters,
        text=text,
        steps=steps,
        checkpoint_bytes=sum(parameters.values()) * FLOAT32_BYTES * (1 + num_states),
        # besides the last ones, the best one and the one that is being written
        num_checkpoints=config.train.checkpoints.keep_last + 2,
        by_ranks={
            world: RanksPlan(
                rows=rows // world,
                memory=plan_memory(config, parameters, text, world, libraries),
                traffic=traffic(config, parameters, world),
                hours=None if hours is None else hours / world,
            )
            if RankShare(0, world, config.deepspeed.gradient_accumulation_steps).divides(rows)
            else None
            for world in ranks or PLANNED_RANKS
        },
    )


def plan_memory(
    config: Config, parameters: dict[str, int], text: TextSize, world: int, libraries: float
) -> Memory:
    """Return the memory of a rank; `libraries` is that of a process before it builds a model."""
    softmax = parameters["softmax"]
    size = ModelSize(softmax, sum(parameters.values()) - softmax, text.vocabulary_size)
    return estimate_memory(config, size, text.predictions, world, libraries)


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
        f"  {'without the softmax':<22}{all_parameters - plan.parameters['softmax']:>16,}",
        "Reading",
        _format_text(plan.text),
        f"  {config.train.num_epochs} epochs, {rows} rows x {unroll} words per step: "
        f"{plan.steps:,} steps",
        "Disk",
        f"  {format_size(checkpoint)} per checkpoint, "
        f"{format_size(checkpoint * plan.num_checkpoints)} for the {plan.num_checkpoints} that may "
        f"exist at the same time, {format_size(all_parameters * FLOAT32_BYTES)} for the exported "
        "model",
        "By number of ranks",
        "  ranks   rows each   memory each   sent per step   of that dense, sparse      hours",
    ]
    lines += [_format_ranks(config, world, ranks) for world, ranks in plan.by_ranks.items()]
    if all(ranks is None or ranks.hours is None for ranks in plan.by_ranks.values()):
        lines.append("  (for hours, pass the measured --words-per-second of one rank)")
    for world, ranks in plan.by_ranks.items():
        if ranks is not None:
            lines.append(_format_memory(world, ranks.memory))
            break
    return "\n".join(lines)


def _format_text(text: TextSize) -> str:
    unknown = f"assuming {ASSUMED_SENTENCE_WORDS} words per sentence"
    if text.unknown_words is not None:
        unknown = f"{text.unknown_words / max(1, text.words):.2%} unknown words"
    return (
        f"  {text.words:,} words in {text.sentences:,} sentences: {text.predictions:,} predictions "
        f"per direction and epoch; {unknown}"
    )


def _format_memory(world: int, memory: Memory) -> str:
    return (
        f"  memory of a rank of {world}: {format_size(memory.libraries)} libraries, "
        f"{format_size(memory.weights)} weights, {format_size(memory.optimizer)} optimizer, "
        f"{format_size(memory.text)} text, {format_size(memory.saving)} checkpoint (rank 0), and "
        f"the larger of {format_size(memory.step)} (step) and {format_size(memory.evaluation)} "
        "(evaluation)"
    )


def _format_ranks(config: Config, world: int, ranks: RanksPlan | None) -> str:
    if ranks is None:
        parts = world * config.deepspeed.gradient_accumulation_steps
        rows = config.deepspeed.train_batch_size
        return f"  {world:>5}   {rows} rows cannot be divided into {parts} equal parts"
    dense, sparse = ranks.traffic.dense, ranks.traffic.sparse
    hours = "-" if ranks.hours is None else f"{ranks.hours:,.1f}"
    return (
        f"  {world:>5}{ranks.rows:>12}{format_size(ranks.memory.peak):>14}"
        f"{format_size(ranks.traffic.payload):>16}{format_size(dense):>15}, "
        f"{format_size(sparse):<10}{hours:>8}"
    )


def format_size(num_bytes: float) -> str:
    """Return a number of bytes with a decimal unit."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if num_bytes < 1000 or unit == "TB":
            return f"{num_bytes:.1f} {unit}" if unit != "B" else f"{num_bytes:.0f} B"
        num_bytes /= 1000
    raise AssertionError
