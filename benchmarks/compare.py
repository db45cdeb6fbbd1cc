"""Compare the speed of two checkouts: `python benchmarks/compare.py OTHER_CHECKOUT`

Runs the same benchmarks alternately in this checkout and in the other one, so that both run under
the same conditions, and prints one JSON line per figure: the median over rounds of the other
checkout's time divided by this one's (above 1: this checkout is faster), with the range of the
ratios. Rounds are repeated until all ratios are steady; a figure whose spread stays above
`--max-spread` is marked as too noisy. Rates, and ratios to another implementation that was measured
in the same run (`times`), are inverted first.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from rounds import Bounds, add_bounds, steady_rounds, summary

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = {
    "lstm": ["lstm.py", "--rounds", "3"],
    "encoder": ["encoder.py", "--rounds", "3"],
    "softmax": ["softmax.py", "--rounds", "3"],
    "step": ["step.py", "--config", "configs/small.json", "--steps", "5"],
    "loader": ["loader.py", "--repeats", "3"],
    "inference": ["inference.py", "--rounds", "3", "--sentences", "500", "--dump-sentences", "0"],
}
TIMES, RATES = ("seconds", "ms"), ("words_per_second", "times")
MAX_SECONDS = 1200.0  # of one benchmark
Figures = dict[str, float]


def main() -> int:
    """Run the chosen benchmarks in both checkouts and print the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, help="the root of another checkout")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=list(COMMANDS),
        default=list(COMMANDS),
        help="benchmarks to run (default: all)",
    )
    add_bounds(parser, rounds=3)
    arguments = parser.parse_args()
    bounds = Bounds(arguments.rounds, arguments.max_spread, MAX_SECONDS)
    for name in arguments.only:
        compare(name, arguments.other.resolve(), bounds)
    return 0


def compare(name: str, other: Path, bounds: Bounds) -> None:
    """Run one benchmark alternately in both, and print the ratio of each common figure."""
    numbers = itertools.count()

    def take_round() -> tuple[Figures, Figures]:
        order = (ROOT, other) if next(numbers) % 2 == 0 else (other, ROOT)
        results = {root: run(root, COMMANDS[name]) for root in order}
        return results[ROOT], results[other]

    pairs = steady_rounds(take_round, lambda pairs: ratios_of(pairs).values(), bounds)
    for label, ratios in ratios_of(pairs).items():
        line = {"benchmark": name, "figure": label, **summary(ratios, bounds.max_spread)}
        print(json.dumps(line), flush=True)


def ratios_of(pairs: list[tuple[Figures, Figures]]) -> dict[str, list[float]]:
    """Return the ratios of each figure that all runs of both checkouts have printed."""
    labels = [label for label in pairs[0][0] if all(label in one for pair in pairs for one in pair)]
    return {label: [b[label] / a[label] for a, b in pairs] for label in labels}


def run(root: Path, command: list[str]) -> Figures:
    """Return the seconds of every figure that a benchmark of the checkout `root` prints."""
    done = subprocess.run(
        [sys.executable, str(root / "benchmarks" / command[0]), *command[1:]],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return dict(figure for line in lines for figure in figures_of(line))


def figures_of(line: dict[str, Any]) -> list[tuple[str, float]]:
    """Return the times in a line of output, labelled by its strings and its other integers."""
    settings = [value for key, value in line.items() if key not in ("median", "least", "greatest")]
    label = ", ".join(str(value) for value in settings if isinstance(value, str | int))
    times = [(f"{label} {key}", float(line[key])) for key in TIMES if key in line]
    rates = [(f"{label} {key}", 1.0 / float(line[key])) for key in RATES if key in line]
    if label.startswith("ms_") and "median" in line:
        times.append((f"{label} median", float(line["median"])))
    if label.endswith("words/s") and "median" in line:
        rates.append((f"{label} median", 1.0 / float(line["median"])))
    return times + rates


if __name__ == "__main__":
    raise SystemExit(main())
