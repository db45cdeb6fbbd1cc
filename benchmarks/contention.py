"""Measure speed beside busy processes: `python benchmarks/contention.py`

Measures words per second of a training step (configs/news.json, and configs/small.json with fewer
rows, so that the slowest turn takes seconds) and of the embedder with its default limits, on two
cores, beside zero, one and two processes of equal priority that never wait. The contenders differ
in their threads and in how OpenMP waits at a barrier. OpenMP reads these settings when torch is
loaded, so each contender has a process of its own; the processes take turns, and all but one are
stopped.

Rounds are repeated until the spread of every figure (interquartile range over median) is within
`--max-spread` and other programs used less than `--max-foreign` cores. A figure that does not
reach this within `--max-rounds` and `--minutes` is marked as too noisy. Prints one JSON line per
figure: `times` is the speed relative to one thread beside as many busy processes, and `kept` the
speed relative to the same contender beside none.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psutil
from measure import figure
from report import machine
from zipf import write_zipf_corpus

CORES = 2
BUSY_COUNTS = (0, 1, 2)
WORKLOADS = ("small", "news", "embed")
BASE = "1 thread"
# The variables of a contender; all others that begin with a prefix below are removed.
OPENMP_PREFIXES = ("OMP_", "GOMP_", "KMP_")
CONTENDERS: dict[str, dict[str, str]] = {
    "default": {},  # what bilm sets
    BASE: {"OMP_NUM_THREADS": "1"},
    # The defaults of GNU's and Intel's OpenMP, which bilm replaces if they are not set explicitly.
    "2 threads, spinning": {
        "OMP_NUM_THREADS": "2",
        "GOMP_SPINCOUNT": "300000",
        "KMP_BLOCKTIME": "200",
    },
    "2 threads, passive": {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"},
}
VOCABULARY, WORDS = 50_000, 200_000
# A process that never waits; it ends if this one is killed.
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
MIN_ROUNDS = 2  # also if they take longer than they may
MIN_RELIABLE_ROUNDS = 4
WORKER_TIMEOUT_SECONDS = 600


class Stopped:
    """A child process that runs only while it is measured."""

    def __init__(self, arguments: Sequence[str], variables: Mapping[str, str]) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(OPENMP_PREFIXES)}
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            env={**kept, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._usage = psutil.Process(self.process.pid)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the process run in the body."""
        self.process.send_signal(signal.SIGCONT)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGSTOP)

    def read_line(self) -> str:
        """Return the next line that the process prints."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a process failed with exit code {self.process.wait()}")
        return line

    def words_per_second(self) -> float:
        """Let the process work once."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.read_line())

    def seconds(self) -> float:
        """Return the CPU time of the process."""
        times = self._usage.cpu_times()
        return times.user + times.system

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate(timeout=WORKER_TIMEOUT_SECONDS)


def start_worker(workload: str, contender: str, corpus: Path, seconds: float) -> Stopped:
    """Start the process of a contender, and wait until it is ready."""
    script = str(Path(__file__).with_name("contention_worker.py"))
    worker = Stopped([script, workload, str(corpus), str(seconds)], CONTENDERS[contender])
    worker.read_line()
    worker.process.send_signal(signal.SIGSTOP)
    return worker


@dataclass
class Turns:
    """The turns of one contender beside some busy processes, one per round."""

    speeds: list[float] = field(default_factory=list)  # words per second
    foreign: list[float] = field(default_factory=list)  # cores used by other programs

    @property
    def spread(self) -> float:
        """The interquartile range of the speeds, relative to their median."""
        low, _, high = statistics.quantiles(self.speeds, n=4, method="inclusive")
        return (high - low) / statistics.median(self.speeds)


def busy_seconds() -> float:
    """Return the time that all cores together were not idle; includes time taken by the host."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)


def take_turn(turns: Turns, worker: Stopped, busy: Sequence[Stopped]) -> None:
    """Measure a contender once beside the processes `busy`."""
    own = (worker, *busy)
    with ExitStack() as stack:
        for process in own:
            stack.enter_context(process.running())
        begun, before = time.perf_counter(), busy_seconds() - sum(p.seconds() for p in own)
        turns.speeds.append(worker.words_per_second())
        foreign = busy_seconds() - sum(p.seconds() for p in own) - before
        turns.foreign.append(max(0.0, foreign / (time.perf_counter() - begun)))


@dataclass(frozen=True)
class Bounds:
    """When a measurement ends, and when it is too noisy."""

    max_rounds: int
    max_spread: float
    max_foreign: float

    def are_met(self, turns: Turns) -> bool:
        """Whether the figures of a contender are reliable."""
        return (
            len(turns.speeds) >= MIN_RELIABLE_ROUNDS
            and turns.spread <= self.max_spread
            and statistics.median(turns.foreign) <= self.max_foreign
        )


def measure_workload(
    workload: str, bounds: Bounds, corpus: Path, seconds: float, deadline: float
) -> bool:
    """Measure all contenders in turn until `deadline`; return whether the figures are reliable."""
    with ExitStack() as stack:
        workers, busy = {}, []
        for name in CONTENDERS:
            workers[name] = start_worker(workload, name, corpus, seconds)
            stack.callback(workers[name].close)
        for _ in range(max(BUSY_COUNTS)):
            busy.append(Stopped(["-c", BUSY], {}))
            stack.callback(busy[-1].close)
            busy[-1].process.send_signal(signal.SIGSTOP)
        turns = {(count, name): Turns() for count in BUSY_COUNTS for name in CONTENDERS}
        for number in range(bounds.max_rounds):
            begun = time.monotonic()
            first = number % len(turns)  # no contender always follows the same one
            for count, name in [*turns][first:] + [*turns][:first]:
                take_turn(turns[count, name], workers[name], busy[:count])
            is_last = 2 * time.monotonic() - begun > deadline  # the next round would end too late
            if number + 1 >= MIN_ROUNDS and (is_last or all(map(bounds.are_met, turns.values()))):
                break
    print_figures(workload, turns, bounds)
    return all(map(bounds.are_met, turns.values()))


def print_figures(workload: str, turns: Mapping[tuple[int, str], Turns], bounds: Bounds) -> None:
    """Print the speed of each contender, and its ratios to others in the same round."""
    for (count, name), own in turns.items():
        times = _ratios(own, turns[count, BASE])
        figure(
            "contention",
            workload=workload,
            busy=count,
            contender=name,
            words_per_second=statistics.median(own.speeds),
            times=round(statistics.median(times), 3),
            times_range=[round(min(times), 3), round(max(times), 3)],
            kept=round(statistics.median(_ratios(own, turns[0, name])), 3),
            spread=round(own.spread, 3),
            foreign_cores=round(statistics.median(own.foreign), 3),
            rounds=len(own.speeds),
            is_too_noisy=not bounds.are_met(own),
        )


def _ratios(own: Turns, other: Turns) -> list[float]:
    return [a / b for a, b in zip(own.speeds, other.speeds, strict=True)]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", choices=WORKLOADS, default=list(WORKLOADS), help="workloads to measure"
    )
    parser.add_argument(
        "--seconds", type=float, default=0.5, help="least duration of a turn (default: %(default)s)"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=9.0,
        help="duration of all workloads; each takes at least two rounds (default: %(default)s)",
    )
    parser.add_argument("--max-rounds", type=int, default=15, help="(default: %(default)s)")
    parser.add_argument("--max-spread", type=float, default=0.1, help="(default: %(default)s)")
    parser.add_argument("--max-foreign", type=float, default=0.1, help="(default: %(default)s)")
    arguments = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    if len(cores) < CORES or arguments.max_rounds < MIN_ROUNDS:
        sys.exit(f"error: this benchmark needs {CORES} cores and at least {MIN_ROUNDS} rounds")
    os.sched_setaffinity(0, cores)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the other processes
    end = time.monotonic() + 60 * arguments.minutes
    figure("contention", **machine())
    bounds = Bounds(arguments.max_rounds, arguments.max_spread, arguments.max_foreign)
    noisy = []
    with tempfile.TemporaryDirectory() as directory:
        write_zipf_corpus(Path(directory), WORDS, VOCABULARY, VOCABULARY, seed=1)
        for number, workload in enumerate(arguments.only):
            now = time.monotonic()
            deadline = now + (end - now) / (len(arguments.only) - number)
            if not measure_workload(workload, bounds, Path(directory), arguments.seconds, deadline):
                noisy.append(workload)
    if noisy:
        print(f"too noisy: {', '.join(noisy)}; repeat them on an idle machine", file=sys.stderr)


if __name__ == "__main__":
    main()
