"""The plots of all reports: learning curves, and the shares of the layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from downstream.reports.pages import layer_name, new_figure, save_figure
from downstream.training.fit import History

_NUM_COLORS = 10  # of matplotlib's default colors

_ROW_HEIGHT = 0.24  # of a legend, in inches

_LEGEND_COLUMNS = 3


class CurveNames(NamedTuple):
    """The names of the loss and of the score."""

    loss: str = "cross-entropy"
    score: str = "accuracy"
    training_scored: bool = True  # the score of the training texts is the same measure


class SelectedHead(NamedTuple):
    """The head that was selected: its mix, its place among the seeds of the mix, and its seed."""

    mix: str
    place: int
    seed: int


def plot_curves(
    histories: Mapping[str, Sequence[History]],
    path: Path,
    names: CurveNames,
    selected: SelectedHead | None = None,
) -> None:
    """Draw loss and score by epoch, with one color per mix and one line per seed.

    Training is dashed, validation is solid, and a dot marks the best epoch of each head.
    """
    rows = -(-(len(histories) + 4) // _LEGEND_COLUMNS)
    figure, (left, right) = new_figure(1, 2, width=5.0, height=3.8 + _ROW_HEIGHT * rows)
    for i, (mix, seeds) in enumerate(histories.items()):
        for place, history in enumerate(seeds):
            is_selected = selected is not None and selected[:2] == (mix, place)
            _draw_head(left, right, history, _color(i), names.training_scored, is_selected)
    left.set_ylabel(f"loss: {names.loss}")
    prefix = "" if names.training_scored else "validation "
    right.set_ylabel(f"{prefix}{names.score} (%)")
    for axis in (left, right):
        axis.set_xlabel("epoch")
        axis.grid(alpha=0.3)
        axis.locator_params(axis="x", integer=True)
    figure.legend(
        handles=_legend(list(histories), names, selected),
        loc="outside lower center",
        ncols=_LEGEND_COLUMNS,
        fontsize="small",
    )
    save_figure(figure, path)


def curves_note(names: CurveNames) -> str:
    """Return the paragraph that explains the curves."""
    score = (
        f"The {names.score} in training is measured with dropout, before each step."
        if names.training_scored
        else f"The {names.score} is measured on the validation split only."
    )
    return (
        "Solid lines are the validation split, and dashed ones the training split. A dot marks the "
        f"best epoch of each head, and a star the head that was selected. {score}"
    )


def _color(place: int) -> str:
    return f"C{place % _NUM_COLORS}"


def _draw_head(
    left: Any, right: Any, history: History, color: str, training_scored: bool, is_selected: bool
) -> None:
    """Draw the curves of one head; a single epoch is a point."""
    epochs = range(1, len(history.train_loss) + 1)
    marker = "." if len(epochs) == 1 else ""
    width = 2.0 if is_selected else 1.2
    left.plot(epochs, history.train_loss, "--", color=color, linewidth=0.9, marker=marker)
    left.plot(epochs, history.validation_loss, color=color, linewidth=width, marker=marker)
    if training_scored:
        shares = [100 * share for share in history.train_accuracy]
        right.plot(epochs, shares, "--", color=color, linewidth=0.9, marker=marker)
    shares = [100 * share for share in history.validation_accuracy]
    right.plot(epochs, shares, color=color, linewidth=width, marker=marker)
    shape, size = ("*", 13) if is_selected else ("o", 4)
    best = history.best_epoch
    right.plot([best], shares[best - 1], shape, color=color, ms=size, mec="black", mew=0.6)


def _legend(mixes: Sequence[str], names: CurveNames, selected: SelectedHead | None) -> list[Any]:
    """Return the lines and marks of the legend."""
    from matplotlib.lines import Line2D

    def mark(shape: str, size: int, label: str) -> Any:
        line = Line2D([], [], linestyle="", marker=shape, markersize=size, label=label)
        line.set(color="grey", markeredgecolor="black", markeredgewidth=0.6)
        return line

    dashed = "training" if names.training_scored else "training (loss)"
    handles = [Line2D([], [], color=_color(i), label=mix) for i, mix in enumerate(mixes)]
    handles += [
        Line2D([], [], color="grey", label="validation"),
        Line2D([], [], color="grey", linestyle="--", label=dashed),
        mark("o", 4, "best epoch"),
    ]
    if selected is not None:
        handles.append(mark("*", 11, f"selected: {selected.mix}, seed {selected.seed}"))
    return handles


def plot_shares(shares: Mapping[str, Sequence[float]], path: Path) -> None:
    """Draw a group of bars per mix: the share of each layer in it."""
    num_layers = len(next(iter(shares.values())))
    figure, (axis,) = new_figure(1, 1, width=max(4.8, 1.3 * len(shares) + 2), height=4.0)
    places = np.arange(len(shares))
    width = 0.8 / num_layers
    for layer in range(num_layers):
        heights = [values[layer] for values in shares.values()]
        axis.bar(
            places + (layer - (num_layers - 1) / 2) * width, heights, width, label=layer_name(layer)
        )
    rotated = {"rotation": 20, "ha": "right"} if len(shares) > 4 else {}
    axis.set_xticks(places, list(shares), **rotated)
    axis.set_ylabel("share of the layer")
    axis.set_ylim(0, 1.05)
    label = f"equal shares (1/{num_layers})"
    axis.axhline(1 / num_layers, color="black", linewidth=0.9, linestyle=":", label=label)
    figure.legend(loc="outside lower center", ncols=_LEGEND_COLUMNS, fontsize="small")
    save_figure(figure, path)
