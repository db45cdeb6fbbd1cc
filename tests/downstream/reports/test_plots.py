from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from downstream.reports import plots
from downstream.reports.plots import (
    Bar,
    Bars,
    plot_bars,
    plot_confused,
    plot_confusion,
    plot_labels,
    plot_numbers,
)
from downstream.tasks.scores import ClassScores, Scores, score

PATH = Path("plot.png")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the list of the figures that are drawn."""
    figures: list[Any] = []
    monkeypatch.setattr(plots, "save_figure", lambda figure, path: figures.append(figure))
    return figures


def scores(classes: list[str]) -> dict[str, Scores]:
    """Return scores in which class i is i times confused with class 0."""
    truth = np.concatenate([np.full(i + 1, i) for i in range(len(classes))])
    predicted = truth.copy()
    predicted[np.r_[True, truth[1:] == truth[:-1]]] = 0
    one = score(truth, predicted, tuple(classes))
    return {"validation": one, "test": one}


def assert_apart_and_inside(figure: Any, labels: list[Any], direction: str) -> None:
    figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in labels]
    ends = [(getattr(box, f"{direction}0"), getattr(box, f"{direction}1")) for box in boxes]
    ends.sort()
    assert all(end <= start for (_, end), (start, _) in pairwise(ends))
    page = figure.bbox
    for box in [*boxes, *(axis.get_tightbbox() for axis in figure.axes)]:
        assert page.x0 <= box.x0
        assert box.x1 <= page.x1
        assert page.y0 <= box.y0
        assert box.y1 <= page.y1


@pytest.mark.parametrize("count", [2, 4, 15, 40])
@pytest.mark.parametrize("name", ["c", "a class with a long name that"])
def test_names_of_classes_do_not_overlap(drawn: list[Any], count: int, name: str) -> None:
    plot_confusion(scores([f"{name} {i}" for i in range(count)]), names(count, name), PATH)
    (figure,) = drawn
    for axis in figure.axes:
        shown = [label.get_text() for label in axis.get_xticklabels()]
        assert len(set(shown)) == count
        assert_apart_and_inside(figure, axis.get_xticklabels(), "x")
        assert_apart_and_inside(figure, axis.get_yticklabels(), "y")


def names(count: int, name: str) -> list[str]:
    return [f"{name} {i}" for i in range(count)]


def test_of_many_classes_those_with_most_errors_are_drawn(drawn: list[Any]) -> None:
    classes = names(50, "class")
    plot_confusion(scores(classes), classes, PATH)
    for axis in drawn[0].axes:
        shown = [label.get_text() for label in axis.get_yticklabels()]
        assert shown == ["class 0", *classes[11:]]
        assert "the 40 of 50 classes with the most test errors" in axis.get_title()


def test_bars_name_what_is_shown(drawn: list[Any]) -> None:
    of = {f"label {i}": ClassScores(1.0, 1.0, 1.0, 100 - i) for i in range(41)}
    plot_labels(of, "spans", PATH)
    plot_labels({"label 0": of["label 0"]}, "spans", PATH)
    many, one = (figure.axes[0] for figure in drawn)
    assert "the 40 most frequent of 41 labels" in many.get_xlabel().replace("\n", " ")
    assert len(many.get_yticklabels()) == 40
    assert "each label" in one.get_xlabel()
    low, high = sorted(many.get_ylim())
    assert (low, high) == (-0.6, 39.6)  # no blank bands


@pytest.mark.parametrize("count", [1, 40])
def test_names_and_numbers_of_bars_are_inside(drawn: list[Any], count: int) -> None:
    rows = {f"{'long name ' * 8}{i}": Bar(1.0, 10**6) for i in range(count)}
    plot_bars([Bars("F1 (%) " + "and a long description " * 6, rows)] * 2, PATH)
    for axis in drawn[0].axes:
        assert_apart_and_inside(drawn[0], axis.get_yticklabels(), "y")
        right = axis.get_window_extent().x1
        assert all(text.get_window_extent().x1 <= right for text in axis.texts)


def test_confused_labels_name_what_is_shown(drawn: list[Any]) -> None:
    plot_confused([(f"B-{i}", f"I-{i}", 50 - i) for i in range(30)], 70, PATH)
    title = drawn[0].axes[0].get_title()
    assert "the 30 most frequent of 70 confusions" in title
    assert "the 40 of 60 labels that are confused most often" in title
    plot_confused([("O", "B-PER", 3)], 1, PATH)
    assert drawn[1].axes[0].get_title() == "number of test words with a wrong label"


def test_no_confusions_are_stated(drawn: list[Any]) -> None:
    plot_confused([], 0, PATH)
    (axis,) = drawn[0].axes
    assert [text.get_text() for text in axis.texts] == ["no word has a wrong label"]


def test_confusions_of_classes_are_sorted() -> None:
    (one, _) = scores(["a", "b", "c"]).values()
    assert one.confusions(("a", "b", "c")) == [("c", "a", 2), ("b", "a", 1)]


def test_predicted_numbers_have_the_limits_of_true_ones(drawn: list[Any]) -> None:
    truth = np.array([1.0, 2.0, 3.0], np.float32)
    for predicted in (truth * 2, np.full_like(truth, 2), truth):
        plot_numbers(truth, predicted, "test", PATH)
        axis = drawn[-1].axes[0]
        assert axis.get_xlim() == axis.get_ylim()
        legend = [text.get_text() for text in drawn[-1].legends[0].get_texts()]
        assert legend == ["predicted = true", "test texts"]
