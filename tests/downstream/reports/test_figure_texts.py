from __future__ import annotations

import logging
from pathlib import Path

import pytest

from downstream.reports import figure_texts
from downstream.reports.figure_texts import prepare_texts, short_names, text_width
from downstream.reports.pages import new_figure, save_figure

FORMULA = r"$x_1^{$ and \frac$"


def test_texts_are_drawn_literally(tmp_path: Path) -> None:
    figure, (axis,) = new_figure(1, 1, width=3, height=3)
    axis.plot([1, 2], label=FORMULA)
    axis.set_xticks([0, 1], [FORMULA, FORMULA])
    axis.set(title=FORMULA, xlabel=FORMULA)
    axis.text(0, 1, FORMULA)
    axis.legend(title=FORMULA)
    figure.suptitle(FORMULA)
    save_figure(figure, tmp_path / "a.png")


def test_numbers_of_logarithmic_axes_are_formulas() -> None:
    figure, (axis,) = new_figure(1, 1, width=3, height=3)
    axis.plot([1, 1000], [1, 2])
    axis.set_xscale("log")
    prepare_texts(figure)
    assert all(label.get_parse_math() for label in axis.xaxis.get_ticklabels())
    assert not any(label.get_parse_math() for label in axis.yaxis.get_ticklabels())
    axis.set_xticks([1, 1000], [FORMULA, FORMULA])
    prepare_texts(figure)
    assert not any(label.get_parse_math() for label in axis.xaxis.get_majorticklabels())
    minor = axis.xaxis.get_minorticklabels()
    assert minor
    assert all(label.get_parse_math() for label in minor)


def test_chooses_a_font_that_has_the_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.font_manager import fontManager

    figure, (axis,) = new_figure(1, 1, width=3, height=3)
    axis.set_title("\N{SUPERSCRIPT ONE}a")
    assert prepare_texts(figure) == ""
    assert axis.title.get_fontfamily() == ["sans-serif"]  # has all characters
    narrow = [entry for entry in fontManager.ttflist if entry.name == "cmtt10"]  # has few
    missing = {"a", "\N{CJK UNIFIED IDEOGRAPH-6771}"}
    monkeypatch.setattr(fontManager, "ttflist", narrow)
    assert figure_texts._covering(missing) == (["cmtt10"], {"\N{CJK UNIFIED IDEOGRAPH-6771}"})


def test_reports_characters_without_a_font_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    figure, (axis,) = new_figure(1, 1, width=3, height=3)
    axis.set_title("a \U000f1234")  # private use: no font has it
    with caplog.at_level(logging.WARNING):
        save_figure(figure, tmp_path / "labels.png")
    (record,) = caplog.records
    assert record.getMessage().startswith("labels.png: no installed font has the characters ")
    assert not recwarn.list


def test_cut_names_stay_different() -> None:
    long = "a" * 40
    assert short_names(["b", "x\n y", long]) == ["b", "x y", "a" * 29 + "…"]
    ends = short_names([f"{long} one", f"{long} two"])
    assert ends == [f"{'a' * 14}…{'a' * 11} one", f"{'a' * 14}…{'a' * 11} two"]
    middles = short_names([f"{long}{i}{long}" for i in range(3)])
    assert len(set(middles)) == 3
    assert all(text_width(name) <= 30 and "…" in name for name in (*ends, *middles))


def test_wide_characters_count_twice() -> None:
    (name,) = short_names(["\N{CJK UNIFIED IDEOGRAPH-6771}" * 40])
    assert text_width(name) <= 30
    assert name.endswith("…")
