from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from downstream.reports import curves
from downstream.reports.curves import (
    CurveNames,
    SelectedHead,
    curves_note,
    plot_curves,
    plot_shares,
)
from downstream.training.fit import History

HISTORIES = {
    "trainable": [
        History([1.0, 0.5], [0.4, 0.8], [1.1, 0.7], [0.5, 0.6], best_epoch=2),
        History([1.1, 0.6], [0.3, 0.7], [1.2, 0.8], [0.45, 0.4], best_epoch=1),
    ],
    "none": [History([1.5], [0.2], [1.6], [0.3], best_epoch=1)],
}
SELECTED = SelectedHead("trainable", 1, 7)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the list of the figures that are drawn."""
    figures: list[Any] = []
    monkeypatch.setattr(curves, "save_figure", lambda figure, path: figures.append(figure))
    return figures


def legend_of(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_training_is_drawn_only_if_it_is_the_same_score(drawn: list[Any]) -> None:
    for scored, dashed in ((True, 3), (False, 0)):
        plot_curves(HISTORIES, Path("c.png"), CurveNames("loss", "F1", scored), SELECTED)
        left, right = drawn[-1].axes
        styles = [line.get_linestyle() for line in right.lines]
        assert styles.count("--") == dashed
        assert [line.get_linestyle() for line in left.lines].count("--") == 3
        assert right.get_ylabel() == ("F1 (%)" if scored else "validation F1 (%)")
        assert ("dropout" in curves_note(CurveNames("loss", "F1", scored))) == scored


def test_legend_is_outside_and_names_the_selected_head(drawn: list[Any]) -> None:
    plot_curves(HISTORIES, Path("c.png"), CurveNames("loss", "F1", False), SELECTED)
    (figure,) = drawn
    names = ["trainable", "none", "validation", "training (loss)", "best epoch"]
    assert legend_of(figure) == [*names, "selected: trainable, seed 7"]
    stars = [line for line in figure.axes[1].lines if line.get_marker() == "*"]
    assert [(list(s.get_xdata()), list(s.get_ydata())) for s in stars] == [([1], [45.0])]
    figure.draw_without_rendering()
    top = figure.legends[0].get_window_extent().y1
    assert all(axis.get_tightbbox().y0 >= top for axis in figure.axes)


def test_a_single_epoch_is_visible(drawn: list[Any]) -> None:
    plot_curves({"none": HISTORIES["none"]}, Path("c.png"), CurveNames())
    assert all(line.get_marker() == "." for line in drawn[0].axes[0].lines)


def test_legend_of_shares_explains_the_dotted_line(drawn: list[Any], tmp_path: Path) -> None:
    plot_shares({"trainable (output)": [0.2, 0.3, 0.5]}, tmp_path / "mix.png")
    assert legend_of(drawn[0])[-1] == "layer 2"
    assert "equal shares (1/3)" in legend_of(drawn[0])
