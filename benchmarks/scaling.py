"""Measure how the time of a step grows: `python benchmarks/scaling.py`

Measures the step time of the model of configs/small.json for several hidden sizes, rows, unrolled
steps, vocabularies and corpora, one at a time. Prints one JSON line per figure.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from measure import figure
from rounds import least_disturbed
from step import Parts
from zipf import write_zipf_corpus

from bilm.corpus.reader import Corpus
from bilm.distributed.process import keep_freed_memory, num_cores
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


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default: %(default)s)")
    parser.add_argument(
        "--threads",
        type=int,
        default=num_cores(),
        help="threads (default: all cores)",
    )
    arguments = parser.parse_args()
    keep_freed_memory()  # like a training process
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as temporary:
        measure_axes(Path(temporary), arguments.rounds)


if __name__ == "__main__":
    main()
