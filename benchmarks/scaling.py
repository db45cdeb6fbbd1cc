"""Measure how the time of a step grows: `python benchmarks/scaling.py`

Measures the step time of the model of configs/small.json for several hidden sizes, rows, unrolled
steps, vocabularies and corpora, one at a time; then words per second of real runs under DeepSpeed
on one rank and on two, with one thread each, and the factor by which a second process increases the
peak speed of matrix products. Prints one JSON line per figure.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from measure import figure, least_disturbed
from step import Parts
from zipf import write_zipf_corpus

from bilm.corpus.reader import Corpus
from bilm.distributed.process import keep_freed_memory
from bilm.training.config import load_config

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "configs" / "small.json"
ROWS, UNROLL, VOCABULARY, WORDS = 64, 20, 50_000, 1_000_000
AXES: dict[str, tuple[int, ...]] = {
    "hidden": (512, 1024, 1536, 2048),
    "rows": (16, 32, 64, 128),
    "unroll": (5, 10, 20, 40),
    "vocabulary": (10_000, 50_000, 200_000, 793_471),
    "corpus": (200_000, 1_000_000, 5_000_000),
}
DIM_PER_PROJECTION_DIM = 8  # in all published sizes
RANK_STEPS, RANK_ROUNDS = 5, 2


class Sizes:
    """One combination of sizes: a model and a corpus, ready for steps."""

    def __init__(self, directory: Path, **changed: int) -> None:
        value = {"hidden": 1024, "rows": ROWS, "unroll": UNROLL, "vocabulary": VOCABULARY}
        value |= {"corpus": WORDS, **changed}
        path = directory / f"{value['vocabulary']}-{value['corpus']}"
        if not path.exists():
            path.mkdir()
            size = value["vocabulary"]
            write_zipf_corpus(path, value["corpus"], max(size, VOCABULARY), size, seed=1)
        config = load_config(
            CONFIG,
            [
                f"model.lstm.dim={value['hidden']}",
                f"model.lstm.projection_dim={value['hidden'] // DIM_PER_PROJECTION_DIM}",
                f"data.unroll_steps={value['unroll']}",
            ],
        )
        self.parts, self.number = Parts(config, Corpus.open(path), value["rows"]), 0

    def step(self) -> tuple[float, float]:
        """Run the next step; return its duration, in total and in the LSTMs."""
        self.parts.seconds.clear()
        self.parts.step(self.number)
        self.number += 1
        seconds = {name: sum(values) for name, values in self.parts.seconds.items()}
        return sum(seconds.values()), seconds["lstm"]


def measure_axes(directory: Path, rounds: int) -> None:
    """Measure the step time for the values of each size, in turn."""
    for axis, values in AXES.items():
        points = [Sizes(directory, **{axis: value}) for value in values]
        for point in points:
            point.step()  # warm-up
        taken = least_disturbed(functools.partial(_steps_of, points), rounds)
        for place, value in enumerate(values):
            words = (value if axis == "rows" else ROWS) * (value if axis == "unroll" else UNROLL)
            seconds = statistics.median(steps[place][0] for steps in taken)
            figure(
                "scaling",
                axis=axis,
                value=value,
                seconds=seconds,
                lstm_seconds=statistics.median(steps[place][1] for steps in taken),
                words_per_second=words / seconds,
            )


def _steps_of(points: list[Sizes]) -> list[tuple[float, float]]:
    return [point.step() for point in points]


def words_per_second(corpus: Path, output: Path, ranks: int) -> float:
    """Return the words per second of a real run, without its first steps."""
    command = [
        "deepspeed",
        "--quiet",
        "--num_gpus",
        str(ranks),
        str(ROOT / "launch" / "pretrain.py"),
        "--config",
        str(CONFIG),
        f"data.corpus={corpus}",
        f"train.output_dir={output}",
        f"train.max_steps={RANK_STEPS}",
        "train.log.every_steps=1",
    ]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": path}
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command)} failed with exit code {done.returncode}:\n{done.stderr}"
        )
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    speeds = [line["words_per_second"] for line in lines if line["event"] == "train"]
    return statistics.median(speeds[2:])


def peak_of_processes(count: int) -> float:
    """Return the total rate of `count` processes of one thread, in operations per second."""
    code = (
        f"import sys; sys.path[:0] = [{str(ROOT / 'benchmarks')!r}, {str(ROOT)!r}]\n"
        "import torch; from measure import product_peak\n"
        "torch.set_num_threads(1); print(product_peak(repeats=20))"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    return sum(float(process.communicate(timeout=120)[0]) for process in started)


def measure_ranks(directory: Path) -> None:
    """Measure runs on one rank and on two, in turn."""
    corpus = directory / f"{VOCABULARY}-{WORDS}"
    speeds: dict[int, list[float]] = {1: [], 2: []}
    peaks: dict[int, list[float]] = {1: [], 2: []}
    for turn in range(RANK_ROUNDS):
        for ranks in speeds:
            peaks[ranks].append(peak_of_processes(ranks))
            speeds[ranks].append(words_per_second(corpus, directory / f"{turn}-{ranks}", ranks))
    for ranks, values in speeds.items():
        figure("scaling", axis="ranks", value=ranks, words_per_second=statistics.median(values))
    ratios = [two / one for one, two in zip(speeds[1], speeds[2], strict=True)]
    figure(
        "scaling",
        name="two ranks",
        than="one rank",
        times=statistics.median(speeds[2]) / statistics.median(speeds[1]),
        spread=[round(min(ratios), 3), round(max(ratios), 3)],
        peak_times=statistics.median(peaks[2]) / statistics.median(peaks[1]),
    )


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default: %(default)s)")
    parser.add_argument(
        "--threads",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="threads (default: all cores)",
    )
    parser.add_argument("--only", choices=["axes", "ranks"], help="run one half of the benchmark")
    arguments = parser.parse_args()
    keep_freed_memory()  # like a training process
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        if arguments.only != "ranks":
            measure_axes(directory, arguments.rounds)
        else:
            Sizes(directory)  # writes the corpus
        if arguments.only != "axes":
            measure_ranks(directory)


if __name__ == "__main__":
    main()
