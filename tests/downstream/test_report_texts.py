"""Reports of data whose texts have characters of Markdown, HTML and formulas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from downstream import classify, tag
from downstream.reports import report
from tests.downstream.order_task import tiny_bilm, write_csv, write_vectors
from tests.downstream.tag_task import tag_flags, write_columns

FORMULA = "$a_{$<b>"
FILES = ("train", "validation", "test")
FEW = ("--mix=none", "--epochs=1", "--encoder-dim=8")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("texts")
    write_vectors(directory / "vectors.txt")
    row = [("First", f"B-{FORMULA}"), ("<script>*x*", "B-`c`|"), ("second", "O")]
    wrong = [("First", "O"), ("<script>*x*", f"B-{FORMULA}"), ("second", "B-`c`|")]
    for name, rows in (("train", [row]), ("validation", [row]), ("test", [row, wrong])):
        write_columns(directory / f"{name}.tsv", rows * 8)
    texts = {name: [("*a*", "the <b>cat_"), ("[b](c)", "a `mat`")] * 8 for name in FILES}
    texts["test"] += [("[b](c)", "the <b>cat_"), ("*a*", "the <b>cat_"), ("*a*", "a `mat`")] * 4
    for name, pairs in texts.items():
        write_csv(directory / f"{name}.csv", pairs)
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


def test_texts_are_literal_in_the_report_of_tags(place: Path) -> None:
    assert tag.main(tag_flags(place, "shown", *FEW, f"--vectors={place / 'vectors.txt'}")) == 0
    page = (place / "shown" / "report.md").read_text("utf-8")
    assert r"| \$a\_{\$&lt;b&gt; " in page  # the table of types
    assert "| word accuracy |" in page
    assert "Word accuracy is the share of all words with the right label, including O" in page
    assert r"| B-\`c\`\|" in page  # the confusions
    assert r"- First &lt;script&gt;\*x\* second" in page  # a sentence
    assert r"[\`c\`|]" in page  # the type of a missed span
    card = (place / "shown" / "model_card.md").read_text("utf-8")
    assert r"**Labels.** O, B-\$a\_{\$&lt;b&gt;, " in card
    for text in (page, card):
        assert "<b>" not in text
        assert "<script>" not in text


def test_texts_are_literal_in_the_report_of_classes(place: Path) -> None:
    tiny_bilm().save_pretrained(place / "model")
    flags = [f"--{name}={place / name}.csv" for name in FILES]
    flags += [f"--model={place / 'model'}", "--mix=top", "--epochs=1"]
    assert classify.main([*flags, f"--output={place / 'classes'}"]) == 0
    page = (place / "classes" / "report.md").read_text("utf-8")
    assert r"| \*a\* " in page
    assert "## Confused labels (test)" in page
    assert r"- the &lt;b&gt;cat\_" in page
    assert r"\[b\](c), predicted: \*a\* (" in page or r"\*a\*, predicted: \[b\](c) (" in page
    card = (place / "classes" / "model_card.md").read_text("utf-8")
    assert r"**Classes.** \*a\*, \[b\](c)." in card
