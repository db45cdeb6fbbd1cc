"""Measure the loader alone: predictions per second on one core, and its share of a training step.

    python benchmarks/loader.py [--corpus corpus/] [--step-seconds 0.5]

Reads batches sequentially in one thread, with character ids and both directions; a batch of 128
rows x 20 steps counts as 2,560 predictions (a position counts once, not per direction). Every
repeat starts a new stream, so that blocks are decoded as in a first epoch; the sha256 of the files
is measured separately. Without `--corpus`, a corpus of Zipf-distributed words is generated in a
temporary directory first. Prints one JSON object per line. Takes several seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from zipf import write_zipf_corpus

from bilm.corpus.batches import BatchStream
from bilm.corpus.global_batch import GlobalBatch
from bilm.corpus.reader import Corpus
from bilm.distributed.process import processor_name
from bilm.errors import ConfigError, run_command

ZIPF_TYPES = 100_000
ZIPF_WORDS = 4_000_000


def main() -> None:
    """Run the command."""
    arguments = _parse()
    _pin_to_one_core()
    _print("machine", **_machine())
    if arguments.corpus is not None:
        _measure(Corpus.open(arguments.corpus), arguments)
        return
    with tempfile.TemporaryDirectory() as directory:
        seed = arguments.batch.seed
        write_zipf_corpus(Path(directory), ZIPF_WORDS, ZIPF_TYPES, ZIPF_TYPES // 2, seed)
        _measure(Corpus.open(directory), arguments)


@dataclass(frozen=True)
class Arguments:
    """The command line."""

    corpus: Path | None
    split: str
    batch: GlobalBatch
    num_batches: int
    repeats: int
    step_seconds: float | None


def _parse() -> Arguments:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", type=Path, help="corpus directory (default: a generated one)")
    parser.add_argument("--split", default="train", help="split to read (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=128, help="rows (default: %(default)s)")
    parser.add_argument(
        "--unroll", type=int, default=20, help="words per row (default: %(default)s)"
    )
    parser.add_argument(
        "--batches", type=int, default=1000, help="batches per repeat (default: %(default)s)"
    )
    parser.add_argument("--repeats", type=int, default=7, help="repeats (default: %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the batches (default: %(default)s)"
    )
    parser.add_argument(
        "--step-seconds",
        type=float,
        help="duration of a training step, to print the loader's share",
    )
    arguments = parser.parse_args()
    for name in ("batches", "repeats"):
        if (value := getattr(arguments, name)) < 1:
            raise ConfigError(f"--{name} is {value}; it must be at least 1")
    if arguments.step_seconds is not None and arguments.step_seconds <= 0:
        raise ConfigError(f"--step-seconds is {arguments.step_seconds}; it must be above 0")
    return Arguments(
        corpus=arguments.corpus,
        split=arguments.split,
        batch=GlobalBatch(arguments.rows, arguments.unroll, arguments.seed, rows_setting="--rows"),
        num_batches=arguments.batches,
        repeats=arguments.repeats,
        step_seconds=arguments.step_seconds,
    )


def _measure(corpus: Corpus, arguments: Arguments) -> None:
    info = corpus.split(arguments.split)
    _print(
        "corpus",
        words=info.words,
        sentences=info.sentences,
        types=len(corpus.lexicon),
        vocabulary=corpus.vocabulary_size,
        shards=len(info.shards),
    )
    verify_seconds = _seconds(corpus.verify)
    size = sum(shard.bytes for split in corpus.splits.values() for shard in split.shards)
    _print("verify", seconds=verify_seconds, megabytes_per_second=size / 1e6 / verify_seconds)
    stream = _stream(corpus, arguments)
    _print("first_batch", ms=1e3 * _seconds(lambda: stream.batch(0)))
    milliseconds = _sequential(corpus, arguments)
    _jump(corpus, stream, arguments)
    if arguments.step_seconds is not None:
        share = statistics.median(milliseconds) / 1e3 / arguments.step_seconds
        words = arguments.batch.rows * arguments.batch.unroll / arguments.step_seconds
        _print("share_of_step", step_seconds=arguments.step_seconds, share=share)
        _print("needed_by_step", predictions_per_second=words)


def _sequential(corpus: Corpus, arguments: Arguments) -> list[float]:
    """Return the milliseconds per batch, one figure per repeat."""
    milliseconds, rates, distinct = [], [], []
    for _ in range(arguments.repeats):
        start = time.perf_counter()
        predictions = 0
        for batch in _stream(corpus, arguments).read(0, arguments.num_batches):
            predictions += batch.num_predictions
            distinct.append(len(batch.words))
        seconds = time.perf_counter() - start
        milliseconds.append(1e3 * seconds / arguments.num_batches)
        rates.append(predictions / seconds)
    _print("ms_per_batch", **_summary(milliseconds))
    _print("predictions_per_second", **_summary(rates))
    _print("distinct_words_per_batch", **_summary(distinct))
    return milliseconds


def _jump(corpus: Corpus, stream: BatchStream, arguments: Arguments) -> None:
    """Measure the time from a new stream to a batch in the middle of an epoch, as in a resume."""
    middle = stream.steps_per_epoch // 2
    jumps = [
        1e3 * _seconds(lambda: _stream(corpus, arguments).batch(middle))
        for _ in range(arguments.repeats)
    ]
    _print("jump_ms", step=middle, **_summary(jumps))


def _stream(corpus: Corpus, arguments: Arguments) -> BatchStream:
    return BatchStream(corpus, arguments.split, arguments.batch, verified=True)


def _seconds(action: Callable[[], Any]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _summary(values: list[float] | list[int]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def _pin_to_one_core() -> None:
    if hasattr(os, "sched_setaffinity"):  # Linux
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def _machine() -> dict[str, Any]:
    return {
        "processor": processor_name(),
        "cores_used": 1,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "date": time.strftime("%Y-%m-%d"),
    }


def _print(figure: str, **values: Any) -> None:
    rounded = {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in values.items()}
    print(json.dumps({"figure": figure, **rounded}), flush=True)


if __name__ == "__main__":
    run_command(main)
