"""How fast the loader is alone: predictions a second of one core, and its share of a training step.

    python benchmarks/loader.py [--corpus corpus/] [--step-seconds 0.5]

Reads batches one after the other, in one thread, with character ids and both directions; a batch of
128 rows x 20 steps counts as 2,560 predictions (a slot counts once, not once a direction). Every
repeat starts a new stream, so that blocks are decoded as in a first epoch; the sha256 of the files
is measured apart. Without `--corpus` a corpus of Zipf-distributed words is generated in a temporary
directory first. Prints one JSON object a line. Takes some seconds.
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
from pathlib import Path
from typing import Any

import numpy as np
from zipf import write_zipf_corpus

from bilm.corpus.batches import BatchStream
from bilm.corpus.reader import Corpus
from bilm.errors import ConfigError, run_command

ZIPF_TYPES = 100_000
ZIPF_WORDS = 4_000_000


def main() -> None:
    """Measure, and print one JSON object a line."""
    arguments = _arguments()
    _pin_to_one_core()
    _print("machine", **_machine())
    if arguments.corpus is not None:
        _measure(Corpus.open(arguments.corpus), arguments)
        return
    with tempfile.TemporaryDirectory() as directory:
        write_zipf_corpus(Path(directory), ZIPF_WORDS, ZIPF_TYPES, ZIPF_TYPES // 2, arguments.seed)
        _measure(Corpus.open(directory), arguments)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", type=Path, help="corpus directory (default: a generated one)")
    parser.add_argument("--split", default="train")
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--unroll", type=int, default=20)
    parser.add_argument("--batches", type=int, default=1000, help="batches of one repeat")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--step-seconds", type=float, help="seconds of a training step, to print the loader's share"
    )
    arguments = parser.parse_args()
    if min(arguments.batches, arguments.repeats) < 1:
        raise ConfigError("--batches and --repeats must be at least 1")
    if arguments.step_seconds is not None and arguments.step_seconds <= 0:
        raise ConfigError(f"--step-seconds is {arguments.step_seconds}; it must be more than 0")
    return arguments


def _measure(corpus: Corpus, arguments: argparse.Namespace) -> None:
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
        words = arguments.rows * arguments.unroll / arguments.step_seconds
        _print("share_of_step", step_seconds=arguments.step_seconds, share=share)
        _print("needed_by_step", predictions_per_second=words)


def _sequential(corpus: Corpus, arguments: argparse.Namespace) -> list[float]:
    """Milliseconds a batch, one figure a repeat."""
    milliseconds, rates, distinct = [], [], []
    for _ in range(arguments.repeats):
        start = time.perf_counter()
        predictions = 0
        for batch in _stream(corpus, arguments).read(0, arguments.batches):
            predictions += batch.num_predictions
            distinct.append(len(batch.words))
        seconds = time.perf_counter() - start
        milliseconds.append(1e3 * seconds / arguments.batches)
        rates.append(predictions / seconds)
    _print("ms_per_batch", **_summary(milliseconds))
    _print("predictions_per_second", **_summary(rates))
    _print("distinct_words_per_batch", **_summary(distinct))
    return milliseconds


def _jump(corpus: Corpus, stream: BatchStream, arguments: argparse.Namespace) -> None:
    """Milliseconds from a new stream to a batch in the middle of an epoch: the cost of a resume."""
    middle = stream.steps_per_epoch // 2
    jumps = [
        1e3 * _seconds(lambda: _stream(corpus, arguments).batch(middle))
        for _ in range(arguments.repeats)
    ]
    _print("jump_ms", step=middle, **_summary(jumps))


def _stream(corpus: Corpus, arguments: argparse.Namespace) -> BatchStream:
    return BatchStream(
        corpus, arguments.split, arguments.rows, arguments.unroll, arguments.seed, verified=True
    )


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
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.processor() or platform.machine(),
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
