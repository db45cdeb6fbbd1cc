"""Take pictures of the page: `python -m tests.downstream.explorer.pictures docs`

Writes `explorer-sentence.png` and `explorer-context.png`, the pictures of the documentation, from
`bilm explore --text examples/bank.txt`. With --all, writes every view at two sizes, light and dark,
with a classifier and a tagger that are trained first; look at them after a change of the page.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from downstream.classify import main as classify
from downstream.tag import main as tag
from tests.conftest import ROOT
from tests.downstream.explorer.browser import chromium, expect
from tests.downstream.explorer.page_place import add_metrics
from tests.downstream.explorer.serving import serving
from tests.downstream.order_task import write_csv
from tests.downstream.tag_task import sentences, tag_flags, write_columns
from tests.downstream.topic_task import topic_texts

MODEL = "english-small"
SENTENCE = "The bank of the river was flooded after the storm ."
QUERY = "She walked down to the bank of the stream ."
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
DOCUMENT = {"width": 1180, "height": 920}
VIEWS = ("sentence", "context", "compare", "classifier", "runs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="directory of the pictures")
    parser.add_argument("--all", action="store_true", help="all views, sizes and modes")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        flags = ["--text", str(ROOT / "examples" / "bank.txt"), "--cache", str(place / "indexes")]
        flags += train_heads(place) if arguments.all else []
        with serving(place / MODEL, *flags, "--model", MODEL) as server, chromium(place) as browser:
            page = browser.new_page()
            page.set_viewport_size(WIDE if arguments.all else DOCUMENT)
            page.goto(server.address)
            fill(page, arguments.all)
            if arguments.all:
                take_all(page, arguments.output)
            else:
                take(page, "sentence", arguments.output / "explorer-sentence.png")
                take(page, "context", arguments.output / "explorer-context.png")


def train_heads(place: Path) -> list[str]:
    """Train a classifier and a tagger, write the metrics of a run, and return the flags."""
    write_csv(place / "train.csv", topic_texts(90, 1))
    data = ["--train", str(place / "train.csv"), "--test", str(place / "train.csv")]
    own = ["--model", MODEL, "--head", "attention", "--output", str(place / "report")]
    classify([*data, *own, "--cache", str(place / "cache"), "--epochs", "5", "--seeds", "1"])
    for name, seed in (("train", 1), ("validation", 2), ("test", 3)):
        write_columns(place / f"{name}.tsv", sentences(60, seed))
    tag([*tag_flags(place, "tags"), f"--model={MODEL}", f"--cache={place / 'cache'}"])
    (place / "run").mkdir()
    for step in range(1, 60):
        add_metrics(place, 50 * step, 70 + 900 / step)
    reports = ["--classifier", str(place / "report"), "--tagger", str(place / "tags")]
    return [*reports, "--run", str(place / "run")]


def fill(page: Any, with_heads: bool) -> None:
    """Enter a sentence in every view."""
    page.get_by_role("textbox", name="Sentence", exact=True).fill(SENTENCE)
    page.get_by_role("button", name="Score").click()
    page.locator("#view-sentence .word").nth(len(SENTENCE.split()) - 1).wait_for()
    page.locator("#view-sentence .word").nth(4).click()
    page.locator("[data-direction=both] tbody tr").first.wait_for()
    open_view(page, "context")
    page.locator("#context-0").fill(QUERY)
    page.get_by_role("button", name="Split into words").click()
    page.get_by_role("button", name="bank").click()
    page.locator("svg.map").wait_for()
    page.locator(".chosen li").first.hover()
    if with_heads:
        open_view(page, "classifier")
        page.locator("#classifier-0").fill("the boat near the bank and the loan of cash")
        page.get_by_role("button", name="Classify").click()
        page.locator("#effects").wait_for()
        page.locator("#tagger-0").fill("First second ran near the second")
        page.get_by_role("button", name="Tag").click()
        page.locator("#tagger-result .word").first.wait_for()
    expect(page.locator("#status")).to_have_text("")


def open_view(page: Any, name: str) -> None:
    page.locator(f"#tab-{name}").click()


def take(page: Any, view: str, path: Path, full_page: bool = False) -> None:
    open_view(page, view)
    path.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=path, full_page=full_page)


def take_all(page: Any, output: Path) -> None:
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for name, size in (("wide", WIDE), ("phone", PHONE)):
            page.set_viewport_size(size)
            for view in VIEWS:
                take(page, view, output / f"{view}-{name}-{scheme}.png", full_page=True)
            for view, radio in (("context", "context-layer"), ("compare", "compare-layer")):
                open_view(page, view)
                page.locator(f"input[name={radio}][value=mix]").check()
                expect(page.locator("#status")).to_have_text("")
                take(page, view, output / f"{view}-mix-{name}-{scheme}.png", full_page=True)
                page.locator(f"input[name={radio}][value='2']").check()


if __name__ == "__main__":
    main()
