"""The plot of docs/performance.md: throughput and step time by size, from scaling.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot

Figure = dict[str, Any]


def plot(figures: list[Figure], path: Path) -> None:
    """Draw words per second by size (above), and step time by size with a fitted line (below)."""
    by_axis: dict[str, list[Figure]] = {}
    for figure in figures:
        if "axis" in figure:
            by_axis.setdefault(figure["axis"], []).append(figure)
    page, (rates, times) = pyplot.subplots(2, 4, figsize=(16, 7.5), layout="constrained")
    for name, cell in zip(("hidden", "rows", "vocabulary", "unroll"), rates, strict=True):
        _plot_rate(cell, name, by_axis[name])
    for name, label, cell in (
        ("hidden", "hidden size squared, millions", times[0]),
        ("rows", "rows of the batch", times[1]),
        ("unroll", "unrolled time steps", times[2]),
    ):
        _plot_time(cell, name, label, by_axis[name])
    for name, label in (
        ("vocabulary", "words of the vocabulary"),
        ("corpus", "words of the corpus"),
    ):
        values = [f["value"] for f in by_axis[name]]
        times[3].semilogx(values, [f["seconds"] for f in by_axis[name]], "o-", label=label)
    times[3].set(xlabel="words", ylabel="step, seconds")
    times[3].legend(loc="lower right")
    for cell in (*rates, *times):
        cell.grid(True, alpha=0.3)
        cell.set_ylim(0, 1.08 * max(max(line.get_ydata()) for line in cell.lines))
    page.savefig(path, dpi=100)


def _plot_rate(cell: Any, name: str, figures: list[Figure]) -> None:
    sizes = [f["value"] for f in figures]
    cell.plot(sizes, [f["words_per_second"] for f in figures], "o-")
    cell.set(xlabel=name, ylabel="words per second")
    if name == "vocabulary":
        cell.set_xscale("log")


def _plot_time(cell: Any, name: str, label: str, figures: list[Figure]) -> None:
    """Draw the time of the LSTMs (by hidden size) or of the step, with a line fitted to it."""
    is_hidden = name == "hidden"
    x = [f["value"] ** 2 / 1e6 if is_hidden else f["value"] for f in figures]
    y = [f["lstm_seconds" if is_hidden else "seconds"] for f in figures]
    slope, start = np.polyfit(x, y, 1)
    cell.plot([0, x[-1]], [start, start + slope * x[-1]], "--", color="grey", label="linear fit")
    cell.plot(x, y, "o", label="measured")
    cell.set(xlabel=label, xlim=(0, None))
    cell.set_ylabel("LSTMs, seconds" if is_hidden else "step, seconds")
    cell.legend(loc="lower right")
