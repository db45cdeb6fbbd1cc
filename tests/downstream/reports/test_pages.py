from __future__ import annotations

import json
from pathlib import Path

import pytest

from bilm.errors import CheckpointError
from downstream.reports.pages import (
    Page,
    check_free,
    markdown_table,
    new_figure,
    percent,
    write_page,
)


def test_table_is_aligned_and_escapes_bars_in_cells() -> None:
    assert markdown_table([["a", "bb"], ["c|d", "e"]]).splitlines() == [
        "| a    | bb |",
        "|------|----|",
        "| c\\|d | e  |",
    ]
    assert (percent(0.12345), percent(0.5, 0.01)) == ("12.35", "50.00 ± 1.00")


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
