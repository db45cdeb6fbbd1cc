"""Reports of data whose texts have characters of Markdown, HTML and formulas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from downstream import tag
from downstream.reports import report
from tests.downstream.order_task import write_vectors
from tests.downstream.tag_task import tag_flags, write_columns

FORMULA = "$a_{$<b>"
FEW = ("--mix=none", "--epochs=1", "--encoder-dim=8")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("texts")
    write_vectors(directory / "vectors.txt")
    row = [("First", f"B-{FORMULA}"), ("<script>*x*", "B-`c`|"), ("second", "O")]
    for name in ("train", "validation", "test"):
        write_columns(directory / f"{name}.tsv", [row] * 8)
    return directory


def test_labels_with_formulas_are_drawn(place: Path) -> None:
    more = (*FEW, f"--vectors={place / 'vectors.txt'}")
    assert tag.main(tag_flags(place, "tag", *more)) == 0
    directory = place / "tag"
    assert {"labels.png", "confusion.png", "curves.png"} <= {p.name for p in directory.iterdir()}
    assert json.loads((directory / "results.json").read_text())["labels"][1] == f"B-{FORMULA}"


def test_failed_plot_does_not_lose_the_head(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no room")

    monkeypatch.setattr(report, "plot_curves", fail)
    more = (*FEW, f"--vectors={place / 'vectors.txt'}")
    assert tag.main(tag_flags(place, "failed", *more)) == 0
    assert "the plot curves.png is left out (RuntimeError: no room)" in caplog.messages
    names = {path.name for path in (place / "failed").iterdir()}
    assert {"tagger.json", "head.safetensors", "results.json", "errors.jsonl"} <= names
    assert "curves.png" not in names
    page = (place / "failed" / "report.md").read_text("utf-8")
    assert "The plot `curves.png` could not be drawn: RuntimeError: no room." in page
    assert "(curves.png)" not in page
