from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from bilm.errors import CheckpointError
from downstream.reports.pages import (
    Page,
    check_free,
    html_document,
    literal,
    markdown_table,
    new_figure,
    percent,
    plain_number,
    plain_numbers,
    write_page,
)


def test_table_is_aligned_and_escapes_bars_in_cells() -> None:
    assert markdown_table([["a", "bb"], ["c|d", "e"]]).splitlines() == [
        "| a    | bb |",
        "|------|----|",
        "| c\\|d | e  |",
    ]
    assert (percent(0.12345), percent(0.5, 0.01)) == ("12.35", "50.00 ± 1.00")


def test_text_is_shown_literally_in_markdown() -> None:
    assert literal("a.b, C-D (e)!") == "a.b, C-D (e)!"
    shown = "&lt;b&gt; &amp;amp; \\*x\\* a\\_b \\`c\\` \\[d\\](e) \\\\ \\$x\\$ \\~"
    assert literal("<b> &amp; *x* a_b `c` [d](e) \\ $x$ ~") == shown
    assert literal(" a\n\n# b\r\n  c\x00\u2028d") == "a # b c\N{REPLACEMENT CHARACTER} d"
    starts = {
        "# a": "\\# a",
        "- a": "\\- a",
        "12. a": "12\\. a",
        "===": "\\===",
        "1a": "1a",
        "|-": "&#124;-",
    }
    assert {text: literal(text) for text in starts} == starts
    assert markdown_table([[literal("a|\\|")]]).splitlines()[0] == r"| a\|\\\| |"


def test_numbers_have_the_digits_of_their_range() -> None:
    shown = [plain_number(x) for x in (0, 3155.44, 2.5, 0.000123456, 55031.2, -3.0, 1e20, 1e-20)]
    assert shown == ["0", "3,155", "2.500", "0.0001235", "55,031", "-3", "1e+20", "1e-20"]
    assert plain_numbers([1_700_000_000, 1_700_000_500]) == ["1,700,000,000", "1,700,000,500"]
    assert plain_numbers([1_700_000_000.25, 1_700_000_003.5]) == [
        "1,700,000,000.250",
        "1,700,000,003.500",
    ]
    assert plain_numbers([11730.4, 56850.9]) == ["11,730", "56,851"]
    assert plain_numbers([2.5, 4.0], digits=3) == ["2.50", "4.00"]


def test_failed_plot_is_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        axes = ()

        def findobj(self, _: object) -> list[object]:
            raise ValueError("first\nno *room*")

    page = Page({}, ["# a", "![a plot](a.png)", "![b](b.png)"], {"a.png": Broken()})
    with caplog.at_level(logging.WARNING):
        write_page(tmp_path / "page", "kind", page)
    assert caplog.messages == ["the plot a.png is left out (ValueError: no *room*)"]
    note = "The plot `a.png` could not be drawn: ValueError: no \\*room\\*."
    text = (tmp_path / "page" / "report.md").read_text()
    assert text == f"# a\n\n{note}\n\n![b](b.png)\n"
    assert not (tmp_path / "page" / "a.png").exists()


def test_page_replaces_only_a_page_of_its_kind(tmp_path: Path) -> None:
    figure, axes = new_figure(1, 2, width=2, height=2)
    assert len(axes) == 2
    place = tmp_path / "page"
    write_page(place, "kind", Page({"x": 1}, ["# a", "b"], {"a.png": figure}))
    assert json.loads((place / "results.json").read_text()) == {
        "format": "kind",
        "version": 1,
        "x": 1,
    }
    assert (place / "report.md").read_text() == "# a\n\nb\n"
    assert (place / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(CheckpointError, match="already exists"):
        write_page(place, "kind", Page({"x": 2}, []))
    with pytest.raises(CheckpointError, match="is not a other directory"):
        check_free(place, "other", overwrite=True)
    write_page(place, "kind", Page({"x": 2}, []), overwrite=True)
    assert json.loads((place / "results.json").read_text())["x"] == 2
    assert not (place / "a.png").exists()


def test_rejects_nan_and_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_page(tmp_path / "page", "kind", Page({"x": float("nan")}, []))
    assert list(tmp_path.iterdir()) == []


def test_html_pages_fit_small_screens_and_isolate_marks() -> None:
    text = html_document("<t>", "p { margin: 0 }", ["<p>a</p>"])
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text
    assert "overflow-wrap: anywhere" in text
    assert "unicode-bidi: isolate" in text
    assert "<title>&lt;t&gt;</title>" in text
    assert "p { margin: 0 }</style>" in text
