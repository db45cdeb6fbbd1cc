"""Compare the step under `deepspeed` with the isolated step: `python benchmarks/deepspeed_step.py`

All contenders use one thread per process and take turns; while one runs, the others are stopped:
- isolated: the step of benchmarks/step.py in this process, without DeepSpeed and without loading;
- one rank, two ranks: real runs under `deepspeed`, with the batch of the configuration;
- two ranks, twice the batch: each rank has as many rows as the one rank;
- the product peak of one process and of two processes at the same time.

Prints one JSON line per ratio: one rank compared with the isolated step, and two ranks (with both
batches) compared with one, next to the ratio of the product peaks, which limits it. Rounds are
repeated until the ratios are steady. A ratio that stays too noisy is marked.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psutil
import torch
from measure import figure
from rounds import Bounds, add_bounds, steady_rounds, summary
from step import Parts
from zipf import write_zipf_corpus

from bilm.corpus.reader import Corpus
from bilm.distributed.process import keep_freed_memory
from bilm.training.config import load_config

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ("news", "small")
VOCABULARY, WORDS = 50_000, 2_000_000
TIMEOUT_SECONDS = 600
PEAK_CODE = f"""
import sys
sys.path[:0] = [{str(ROOT / "benchmarks")!r}, {str(ROOT)!r}]
import torch
from measure import product_peak
torch.set_num_threads(1)
for line in sys.stdin:
    print(product_peak(repeats=4), flush=True)
"""
# Nothing but steps, and no timeout while the ranks are stopped.
OVERRIDES = (
    "train.num_epochs=1000",
    "train.log.every_steps=1",
    "train.log.histograms_every_steps=null",
    "train.checkpoints.every_steps=1000000",
    "train.evaluation.every_steps=1000000",
    "train.timeout_seconds=3600",
)


class Isolated:
    """The step without DeepSpeed, in this process."""

    def __init__(self, name: str, corpus: Path) -> None:
        config = load_config(name)
        self.rows, self.unroll = config.deepspeed.train_batch_size, config.data.unroll_steps
        self.parts = Parts(config, Corpus.open(corpus), self.rows)
        self.numbers = itertools.count()
        self.parts.step(next(self.numbers))  # warm-up

    def words_per_second(self, seconds: float) -> float:
        """Return the median speed of the steps of one turn."""
        speeds: list[float] = []
        deadline = time.monotonic() + seconds
        while not speeds or time.monotonic() < deadline:
            self.parts.seconds.clear()
            self.parts.step(next(self.numbers))
            taken = sum(sum(values) for values in self.parts.seconds.values())
            speeds.append(self.rows * self.unroll / taken)
        return statistics.median(speeds)


class Ranks:
    """A run under `deepspeed` that is stopped between its turns."""

    def __init__(self, process: psutil.Popen, output: Path) -> None:
        self.process, self.metrics = process, output / "metrics.jsonl"
        self.wait_for_lines(3)  # warm-up
        self.members = [self.process, *self.process.children(recursive=True)]
        self.stop()

    def stop(self) -> None:
        """Stop all processes of the run, the ranks first, and wait until they have stopped."""
        for member in reversed(self.members):
            member.suspend()
        while any(member.status() != psutil.STATUS_STOPPED for member in self.members):
            time.sleep(0.001)

    def speeds(self) -> list[float]:
        """Return the words per second of all steps so far."""
        if not self.metrics.exists():
            return []
        lines = self.metrics.read_text(encoding="utf-8").splitlines(keepends=True)
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        return [event["words_per_second"] for event in events if event["event"] == "train"]

    def wait_for_lines(self, count: int) -> list[float]:
        """Wait until `count` steps have been logged, and return their speeds."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while len(speeds := self.speeds()) < count:
            if self.process.poll() is not None:
                raise RuntimeError(f"the run failed with exit code {self.process.returncode}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"the run took more than {TIMEOUT_SECONDS} s for {count} steps")
            time.sleep(0.005)
        return speeds

    def words_per_second(self, seconds: float) -> float:
        """Continue for one turn; return the median speed, without the step that was stopped."""
        before = len(self.speeds())
        for member in self.members:
            member.resume()
        self.wait_for_lines(before + 1)
        time.sleep(seconds)
        speeds = self.wait_for_lines(before + 2)
        self.stop()
        return statistics.median(speeds[before + 1 :])


@contextmanager
def ranks_of(name: str, corpus: Path, output: Path, count: int, batch: int) -> Iterator[Ranks]:
    """Start a run of `count` ranks with a global batch of `batch` rows, and kill it at the end."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    deepspeed = str(Path(sys.executable).parent / "deepspeed")
    command = [deepspeed, "--quiet", f"--num_gpus={count}", f"--master_port={port}"]
    command += [str(ROOT / "launch" / "pretrain.py"), "--config", name, *OVERRIDES]
    command += [f"data.corpus={corpus}", f"train.output_dir={output}"]
    command.append(f"deepspeed.train_batch_size={batch}")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    process = psutil.Popen(
        command,
        env=environment,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield Ranks(process, output)
    finally:
        for member in [*process.children(recursive=True), process]:
            member.kill()
        process.wait()


@contextmanager
def peak_processes() -> Iterator[list[subprocess.Popen[str]]]:
    """Start two processes that measure the product peak when they are asked to."""
    command = [sys.executable, "-c", PEAK_CODE]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def peak_of(processes: Sequence[subprocess.Popen[str]]) -> float:
    """Return the total rate of processes that multiply at the same time."""
    for process in processes:
        assert process.stdin is not None
        print(file=process.stdin, flush=True)
    return sum(float(process.stdout.readline()) for process in processes if process.stdout)


TWICE = "two ranks, twice the batch"
PAIRS = (
    ("one rank", "isolated"),
    ("two ranks", "one rank"),
    (TWICE, "one rank"),
    ("two peaks", "one peak"),
)


def measure(name: str, directory: Path, bounds: Bounds, seconds: float) -> None:
    """Measure one configuration and print its figures."""
    corpus = directory / "corpus"
    with ExitStack() as stack:
        batch = load_config(name).deepspeed.train_batch_size
        one, two, twice = (
            stack.enter_context(
                ranks_of(name, corpus, directory / f"{name}-{count}-{rows}", count, rows)
            )
            for count, rows in ((1, batch), (2, batch), (2, 2 * batch))
        )
        peaks = stack.enter_context(peak_processes())
        isolated = Isolated(name, corpus)

        def take_round() -> dict[str, float]:
            return {
                "isolated": isolated.words_per_second(seconds),
                "one rank": one.words_per_second(seconds),
                "one peak": peak_of(peaks[:1]),
                "two ranks": two.words_per_second(seconds),
                TWICE: twice.words_per_second(seconds),
                "two peaks": peak_of(peaks),
            }

        def ratios_of(taken: list[dict[str, float]]) -> list[list[float]]:
            return [[speeds[a] / speeds[b] for speeds in taken] for a, b in PAIRS]

        taken = steady_rounds(take_round, ratios_of, bounds)
    summaries = [summary(r, bounds.max_spread) for r in ratios_of(taken)]
    for contender in ("isolated", "one rank", "two ranks", TWICE):
        speed = statistics.median(speeds[contender] for speeds in taken)
        figure("deepspeed_step", config=name, contender=contender, words_per_second=speed)
    of_peaks = summaries.pop()
    peaks_too = {"peak_times": of_peaks["times"], "peak_range": of_peaks["range"]}
    for (contender, other), ratios in zip(PAIRS, summaries, strict=False):
        limit = {} if other == "isolated" else peaks_too
        figure("deepspeed_step", config=name, name=contender, than=other, **ratios, **limit)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_bounds(parser)
    parser.add_argument("--only", nargs="+", choices=CONFIGS, default=CONFIGS, help="models")
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="least duration of a turn (default: %(default)s)"
    )
    arguments = parser.parse_args()
    keep_freed_memory()  # like a training process
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        corpus = Path(temporary) / "corpus"
        corpus.mkdir()
        write_zipf_corpus(corpus, WORDS, VOCABULARY, VOCABULARY, seed=1)
        for name in arguments.only:
            bounds = Bounds(arguments.rounds, arguments.max_spread)
            measure(name, Path(temporary), bounds, arguments.seconds)


if __name__ == "__main__":
    main()
