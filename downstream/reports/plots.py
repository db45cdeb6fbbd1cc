"""The plots of the reports of tasks: confusion matrices, bars, and predicted numbers."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from downstream.reports.pages import new_figure, save_figure
from downstream.tasks.scores import ClassScores, Scores

Floats = npt.NDArray[np.float32]

_MAX_NUMBERED_CLASSES = 20

_MAX_LABELS = 40

_MANY_TEXTS = 500

# The largest number of words in each group of answers or mentions.
LENGTHS = {"1 word": 1, "2": 2, "3": 3, "4 to 6": 6, "7 to 10": 10, "11 or more": sys.maxsize}


def plot_confusion(scores: dict[str, Scores], classes: Sequence[str], path: Path) -> None:
    """Draw one matrix per split; a cell is shaded by its share of the true class."""
    figure, axes = new_figure(1, len(scores), width=4.2, height=4.0)
    for axis, (split, result) in zip(axes, scores.items(), strict=True):
        counts = np.array(result.confusion)
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        axis.imshow(shares, vmin=0, vmax=1, cmap="Blues")
        axis.set_title(f"{split}: accuracy {result.accuracy:.2%}")
        axis.set_xlabel("predicted class")
        axis.set_ylabel("true class")
        if len(classes) > _MAX_NUMBERED_CLASSES:
            continue
        names = [name if len(name) <= 12 else name[:11] + "…" for name in classes]
        rotation = 45 if max(map(len, names)) > 3 else 0
        axis.set_xticks(range(len(classes)), names, rotation=rotation)
        axis.set_yticks(range(len(classes)), names)
        for i, j in np.ndindex(counts.shape):
            color = "white" if shares[i, j] > 0.5 else "black"
            size = 9 if len(classes) <= 8 else 6
            text = f"{counts[i, j]:,}"
            axis.text(j, i, text, ha="center", va="center", color=color, size=size)
    save_figure(figure, path)


def plot_labels(scores: Mapping[str, ClassScores], unit: str, path: Path) -> None:
    """Draw a bar per label: its F1, for the most frequent labels; `unit` is what they label."""
    shown = sorted(scores, key=lambda name: -scores[name].support)[:_MAX_LABELS]
    rows = {name: Bar(scores[name].f1, scores[name].support) for name in shown}
    plot_bars([Bars(f"F1 (%) of each label, with its number of {unit}", rows)], path)


class Bar(NamedTuple):
    """A share from 0 to 1, and the number of examples that it is computed from, if shown."""

    share: float
    support: int | None = None


class Bars(NamedTuple):
    """Bars by their names; `label` describes the shares and the numbers of examples."""

    label: str
    bars: Mapping[str, Bar]


def length_name(num_words: int) -> str:
    """Return the name of the group of texts with so many words."""
    return next(name for name, longest in LENGTHS.items() if num_words <= longest)


def plot_bars(panels: Sequence[Bars], path: Path) -> None:
    """Draw a panel of horizontal bars for each of `panels`, in percent."""
    height = 0.28 * max(len(panel.bars) for panel in panels) + 1.2
    figure, axes = new_figure(1, len(panels), width=6.0, height=height)
    for axis, (label, rows) in zip(axes, panels, strict=True):
        values = [100 * bar.share for bar in rows.values()]
        bars = axis.barh(range(len(rows)), values)
        axis.bar_label(bars, [f"{value:.1f}" for value in values], padding=3, size=8)
        names = [
            name[:40] if bar.support is None else f"{name[:40]} ({bar.support:,})"
            for name, bar in rows.items()
        ]
        axis.set_yticks(range(len(rows)), names)
        axis.invert_yaxis()
        axis.set_xlim(0, 108)
        axis.set_xlabel(label)
    save_figure(figure, path)


def plot_confused(confusions: Sequence[tuple[str, str, int]], path: Path) -> None:
    """Draw how often words of one label got another one, for the labels confused most often.

    A confusion is a true label, a predicted one, and a number of words. Words with the right label
    are not shown.
    """
    involved: Counter[str] = Counter()
    for truth, predicted, count in confusions:
        involved.update({truth: count, predicted: count})
    names = sorted(name for name, _ in involved.most_common(_MAX_NUMBERED_CLASSES))
    places = {name: i for i, name in enumerate(names)}
    counts = np.zeros((len(names), len(names)), dtype=np.int64)
    for truth, predicted, count in confusions:
        if truth in places and predicted in places:
            counts[places[truth], places[predicted]] = count
    size = 2.4 + 0.42 * len(names)
    figure, (axis,) = new_figure(1, 1, width=size, height=size)
    if names:
        axis.imshow(counts, cmap="Blues", vmin=0)
    axis.set_xticks(range(len(names)), [name[:20] for name in names], rotation=90)
    axis.set_yticks(range(len(names)), [name[:20] for name in names])
    axis.set(title="words with a wrong label", xlabel="predicted label", ylabel="true label")
    for i, j in np.argwhere(counts):
        color = "white" if counts[i, j] > counts.max() / 2 else "black"
        text = f"{counts[i, j]:,}"
        axis.text(j, i, text, ha="center", va="center", color=color, size=7)
    save_figure(figure, path)


def plot_numbers(truth: Floats, predicted: Floats, title: str, path: Path) -> None:
    """Draw a dot per text: the predicted number against the true one, with the diagonal."""
    figure, (axis,) = new_figure(1, 1, width=4.8, height=4.6)
    ends = [float(min(truth.min(), predicted.min())), float(max(truth.max(), predicted.max()))]
    axis.plot(ends, ends, color="grey", linestyle="--", linewidth=1)
    size = 14 if len(truth) <= _MANY_TEXTS else 4
    axis.scatter(truth, predicted, s=size, alpha=0.5, linewidths=0)
    axis.set_xlabel("true number")
    axis.set_ylabel("predicted number")
    axis.set_title(title, fontsize="medium")
    axis.grid(alpha=0.3)
    save_figure(figure, path)
