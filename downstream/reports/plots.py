"""The plots of the reports of tasks: confusion matrices, bars, and predicted numbers."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from downstream.reports.figure_texts import short_names, text_width
from downstream.reports.pages import new_figure, save_figure
from downstream.tasks.scores import ClassScores, Scores

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

_MAX_NAMED = 40  # classes or labels in a plot

# Larger matrices, or those with longer names, are drawn below each other.
_MAX_IN_A_ROW = 8
_MAX_WIDTH_IN_A_ROW = 16

_POINTS_IN_A_CELL = 98  # the font size at which a digit is as wide as a cell of one inch

_BARS_WIDTH = 4.4  # inches, without the names

_AXIS_LABEL_WIDTH = 52  # columns

_MANY_TEXTS = 500

# The largest number of words in each group of answers or mentions.
LENGTHS = {"1 word": 1, "2": 2, "3": 3, "4 to 6": 6, "7 to 10": 10, "11 or more": sys.maxsize}


class _Matrix(NamedTuple):
    """Counts of pairs of names, and what is drawn: shades from 0 to 1, a title and two labels."""

    names: Sequence[str]
    counts: Counts
    shades: npt.NDArray[np.float64]
    title: str
    kind: str  # of the names, such as "class"


def plot_confusion(scores: Mapping[str, Scores], classes: Sequence[str], path: Path) -> None:
    """Draw one matrix per split; a cell is shaded by its share of the true class.

    Of many classes, those with the most errors in the last split, which is the test split, are
    shown.
    """
    last = np.array(list(scores.values())[-1].confusion)
    errors = last.sum(axis=0) + last.sum(axis=1) - 2 * last.diagonal()
    order = np.lexsort((-last.sum(axis=1), -errors))
    shown = np.sort(order[:_MAX_NAMED])
    names = [classes[i] for i in shown]
    some = ""
    if len(classes) > len(shown):
        some = f"\nthe {len(shown)} of {len(classes):,} classes with the most test errors"
    matrices = []
    for split, result in scores.items():
        counts = np.array(result.confusion)
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        title = f"{split}: accuracy {result.accuracy:.2%}{some}"
        part = np.ix_(shown, shown)
        matrices.append(_Matrix(names, counts[part], shares[part], title, "class"))
    _draw_matrices(matrices, path)


def _draw_matrices(matrices: Sequence[_Matrix], path: Path) -> None:
    """Draw matrices of the same size side by side, or below each other if they are large."""
    names = short_names(matrices[0].names)
    count, widest = len(names), max(map(text_width, names), default=0)
    is_small = count <= _MAX_IN_A_ROW and widest <= _MAX_WIDTH_IN_A_ROW
    rows, columns = (1, len(matrices)) if is_small else (len(matrices), 1)
    cell = 0.55 if count <= 8 else 0.36 if count <= 20 else 0.3
    side = max(2.4, cell * count)
    labels = 0.085 * widest + 0.7  # the names and the title of an axis, in inches
    figure, axes = new_figure(rows, columns, max(4.2, side + labels), side + labels + 0.6)
    for axis, matrix in zip(axes, matrices, strict=True):
        axis.imshow(matrix.shades, vmin=0, vmax=1, cmap="Blues")
        axis.set_title(matrix.title, fontsize="medium")
        axis.set_xlabel(f"predicted {matrix.kind}")
        axis.set_ylabel(f"true {matrix.kind}")
        rotation = 90 if widest > 3 else 0
        axis.set_xticks(range(count), names, rotation=rotation, fontsize=9)
        axis.set_yticks(range(count), names, fontsize=9)
        for i, j in np.argwhere(matrix.counts):
            color = "white" if matrix.shades[i, j] > 0.5 else "black"
            text = f"{matrix.counts[i, j]:,}"
            size = min(9.0 if count <= 8 else 7.5, _POINTS_IN_A_CELL * cell / len(text))
            axis.text(j, i, text, ha="center", va="center", color=color, size=size)
    save_figure(figure, path)


def plot_labels(scores: Mapping[str, ClassScores], unit: str, path: Path) -> None:
    """Draw a bar per label: its F1, for the most frequent labels; `unit` is what they label."""
    shown = sorted(scores, key=lambda name: -scores[name].support)[:_MAX_NAMED]
    rows = {name: Bar(scores[name].f1, scores[name].support) for name in shown}
    which = "each label"
    if len(scores) > len(shown):
        which = f"the {len(shown)} most frequent of {len(scores):,} labels"
    plot_bars([Bars(f"F1 (%) of {which}, with its number of test {unit}", rows)], path)


class Bar(NamedTuple):
    """A share from 0 to 1, and the number of examples that it is computed from, if shown."""

    share: float
    support: int | None = None


class Bars(NamedTuple):
    """Bars by their names; `label` describes the shares and the numbers of examples."""

    label: str
    bars: Mapping[str, Bar]


def length_name(num_words: int) -> str:
    """Return the name of the group of texts of `num_words` words."""
    return next(name for name, longest in LENGTHS.items() if num_words <= longest)


def plot_bars(panels: Sequence[Bars], path: Path) -> None:
    """Draw a panel of horizontal bars for each of `panels`, in percent."""
    most = max(len(panel.bars) for panel in panels)
    names = [short_names(list(panel.bars)) for panel in panels]
    widest = max((text_width(name) for own in names for name in own), default=0)
    width = _BARS_WIDTH + 0.085 * (widest + 8)
    figure, axes = new_figure(1, len(panels), width=width, height=0.26 * max(most, 3) + 1.2)
    for axis, (label, rows), own in zip(axes, panels, names, strict=True):
        values = [100 * bar.share for bar in rows.values()]
        bars = axis.barh(range(len(rows)), values)
        axis.bar_label(bars, [f"{value:.1f}" for value in values], padding=3, size=8)
        shown = [
            name if bar.support is None else f"{name} ({bar.support:,})"
            for name, bar in zip(own, rows.values(), strict=True)
        ]
        axis.set_yticks(range(len(rows)), shown)
        axis.set_ylim(max(len(rows), 1) - 0.4, -0.6)
        axis.set_xlim(0, 118)
        axis.set_xticks(range(0, 101, 20))
        axis.set_xlabel(fill(label, _AXIS_LABEL_WIDTH), fontsize="medium")
        if not rows:
            axis.text(59, 0, "none", ha="center", va="center")
    save_figure(figure, path)


def plot_confused(
    confusions: Sequence[tuple[str, str, int]], num_confusions: int, path: Path
) -> None:
    """Draw how often words of one label got another one, for the labels confused most often.

    A confusion is a true label, a predicted one, and a number of words; `confusions` are the most
    frequent ones of `num_confusions`. Words with the right label are not shown.
    """
    involved: Counter[str] = Counter()
    for truth, predicted, count in confusions:
        involved.update({truth: count})
        involved.update({predicted: count})
    names = sorted(name for name, _ in involved.most_common(_MAX_NAMED))
    if not names:
        _draw_text("no word has a wrong label", path)
        return
    places = {name: i for i, name in enumerate(names)}
    counts = np.zeros((len(names), len(names)), dtype=np.int64)
    for truth, predicted, count in confusions:
        if truth in places and predicted in places:
            counts[places[truth], places[predicted]] = count
    title = "number of test words with a wrong label"
    if num_confusions > len(confusions):
        title += f"\nthe {len(confusions):,} most frequent of {num_confusions:,} confusions"
    if len(involved) > len(names):
        title += f"\nthe {len(names)} of {len(involved):,} labels that are confused most often"
    _draw_matrices([_Matrix(names, counts, counts / counts.max(), title, "label")], path)


def _draw_text(text: str, path: Path) -> None:
    """Draw a text in place of a plot without data."""
    figure, (axis,) = new_figure(1, 1, width=4.2, height=1.0)
    axis.set_axis_off()
    axis.text(0.5, 0.5, text, ha="center", va="center")
    save_figure(figure, path)


def plot_numbers(truth: Floats, predicted: Floats, title: str, path: Path) -> None:
    """Draw a dot per text: the predicted number against the true one, with the diagonal."""
    figure, (axis,) = new_figure(1, 1, width=5.0, height=5.2)
    low = float(min(truth.min(), predicted.min()))
    high = float(max(truth.max(), predicted.max()))
    margin = 0.04 * (high - low) or 1.0
    ends = (low - margin, high + margin)
    axis.plot(ends, ends, color="grey", linestyle="--", linewidth=1, label="predicted = true")
    size = 14 if len(truth) <= _MANY_TEXTS else 4
    axis.scatter(truth, predicted, s=size, alpha=0.5, linewidths=0, label="test texts")
    axis.set(xlim=ends, ylim=ends, aspect="equal")
    axis.set_xlabel("true number")
    axis.set_ylabel("predicted number")
    axis.locator_params(nbins=6)
    axis.set_title(title, fontsize="medium")
    axis.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, fontsize="small")
    save_figure(figure, path)
