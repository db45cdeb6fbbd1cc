"""The plots of a report: confusion matrices, labels, numbers, learning curves, layer weights."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from downstream.reports.pages import layer_name, new_figure, save_figure
from downstream.tasks.scores import ClassScores, Scores
from downstream.training.fit import History

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


class CurveNames(NamedTuple):
    """The names of the curves: the loss, and the score, if it is not the accuracy."""

    loss: str = "cross-entropy"
    score: str = ""
    training_score: str = "accuracy"


_USUAL_NAMES = CurveNames()


def plot_curves(
    histories: dict[str, list[History]], path: Path, names: CurveNames = _USUAL_NAMES
) -> None:
    """Draw loss and accuracy by epoch, with one color per mix and one line per seed.

    Training is dashed, validation is solid, and a dot marks the best epoch.
    """
    figure, (left, right) = new_figure(1, 2, width=5.0, height=3.8)
    for i, (name, seeds) in enumerate(histories.items()):
        for number, history in enumerate(seeds):
            color, epochs = f"C{i % 10}", range(1, len(history.train_loss) + 1)
            label = name if number == 0 else None
            left.plot(epochs, history.train_loss, "--", color=color, linewidth=0.9)
            left.plot(epochs, history.validation_loss, color=color, linewidth=1.2)
            right.plot(epochs, history.train_accuracy, "--", color=color, linewidth=0.9)
            right.plot(epochs, history.validation_accuracy, color=color, linewidth=1.2, label=label)
            best = history.best_epoch
            right.plot([best], [history.validation_accuracy[best - 1]], "o", color=color, ms=4)
    left.set_ylabel(names.loss)
    right.set_ylabel(
        f"{names.training_score} (dashed), {names.score}" if names.score else "accuracy"
    )
    for axis in (left, right):
        axis.set_xlabel("epoch")
        axis.grid(alpha=0.3)
        axis.locator_params(axis="x", integer=True)
    right.legend(title="dashed: training", fontsize="small")
    save_figure(figure, path)


def plot_shares(shares: dict[str, list[float]], path: Path) -> None:
    """Draw a group of bars per mix: the share of each layer in it."""
    figure, (axis,) = new_figure(1, 1, width=max(4.5, 1.3 * len(shares) + 2), height=3.6)
    num_layers = len(next(iter(shares.values())))
    places = np.arange(len(shares))
    width = 0.8 / num_layers
    for layer in range(num_layers):
        heights = [values[layer] for values in shares.values()]
        axis.bar(
            places + (layer - (num_layers - 1) / 2) * width, heights, width, label=layer_name(layer)
        )
    axis.set_xticks(places, list(shares), rotation=20 if len(shares) > 4 else 0)
    axis.set_ylabel("share of the layer")
    axis.set_ylim(0, 1.05)
    axis.axhline(1 / num_layers, color="grey", linewidth=0.8, linestyle=":")
    axis.legend(fontsize="small")
    save_figure(figure, path)
