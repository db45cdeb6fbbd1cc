"""The page in a real browser: what is displayed agrees with `Embedder` and `Scorer`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from bilm.embedding.embedder import Embedder
from bilm.embedding.scorer import Scorer
from downstream.classifier import TextClassifier
from downstream.classify import main as classify
from downstream.predictors.tagger import Tagger
from downstream.tag import main as tag
from tests.bilm.embedding.elmo_models import tiny
from tests.downstream.explorer.browser import chromium
from tests.downstream.explorer.serving import Server, serving
from tests.downstream.explorer.small_models import write_text
from tests.downstream.order_task import write_csv
from tests.downstream.tag_task import make_tag_place, tag_flags
from tests.downstream.topic_task import topic_texts

pytestmark = [pytest.mark.slow, pytest.mark.launch]

SENTENCE = "the bank floods the unheard river ."
WORDS = SENTENCE.split()
HOSTILE = '<img src=x onerror=alert(1)> & "quotes"'
TABS = ["Sentence", "Word in context", "Compare", "Classifier", "Runs"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("page")
    tiny().save_pretrained(directory / "model")
    write_text(directory)
    write_csv(directory / "train.csv", topic_texts(60, 1))
    flags = ["--model", str(directory / "model"), "--train", str(directory / "train.csv")]
    flags += ["--test", str(directory / "train.csv"), "--head", "attention", "--mix", "average"]
    flags += ["--epochs", "1", "--encoder-dim", "8", "--cache", str(directory / "cache")]
    classify([*flags, "--output", str(directory / "report"), "--seeds", "1", "--device", "cpu"])
    (directory / "tagging").mkdir()
    own = make_tag_place(directory / "tagging")
    tag([*tag_flags(own, "report", "--device=cpu"), f"--model={own / 'model'}"])
    (directory / "run").mkdir()
    add_metrics(directory, 1, 50.0)
    add_metrics(directory, 2, 40.0)
    return directory


def add_metrics(directory: Path, step: int, perplexity: float) -> None:
    """Append the lines of a step, as a run does."""
    train = {"event": "train", "step": step, "loss_forward": 3.0, "words_per_second": 100 * step}
    heldout = {"event": "heldout", "step": step, "perplexity": perplexity}
    with open(directory / "run" / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(train) + "\n" + json.dumps(heldout) + "\n")


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[Server]:
    flags = ["--text", str(place / "text.txt"), "--cache", str(place / "indexes")]
    flags += ["--classifier", str(place / "report"), "--run", str(place / "run")]
    flags += ["--tagger", str(place / "tagging" / "report")]
    with serving(place / "model", *flags) as own:
        yield own


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("browser")) as context:
        yield context


@pytest.fixture
def page(browser: Any, server: Server) -> Iterator[Any]:
    """Open the page; check that it sends requests only to its service, without errors."""
    own = browser.new_page()
    hosts: set[str | None] = set()
    problems: list[str] = []
    own.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    own.on("pageerror", lambda error: problems.append(str(error)))
    own.on("dialog", lambda dialog: problems.append(dialog.message))
    own.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    own.goto(server.address)
    own.get_by_role("tab", name="Sentence").wait_for()
    yield own
    own.close()
    assert hosts == {f"127.0.0.1:{server.port}"}
    assert problems == []


def open_tab(page: Any, name: str) -> Any:
    page.get_by_role("tab", name=name).click()
    return page.get_by_role("tabpanel", name=name)


def score(page: Any, text: str) -> Any:
    """Score a sentence in the first view, and return its words."""
    page.get_by_role("textbox", name="Sentence").fill(text)
    page.get_by_role("button", name="Score").click()
    page.locator("#perplexity").filter(has_text="Perplexity").wait_for()
    return page.locator("#view-sentence .word")


def test_sentence_shows_surprisals_and_predictions(page: Any) -> None:
    words = score(page, SENTENCE)
    scorer = Scorer(tiny(), device="cpu")
    (expected,) = scorer.score([WORDS])
    bits = expected.surprisals.mean(axis=0) / math.log(2)
    texts = [text.split("\n") for text in words.all_inner_texts()]
    assert [text[0] for text in texts] == WORDS
    shown = [float(text[-1].removesuffix(" bits")) for text in texts]
    np.testing.assert_allclose(shown, bits, atol=0.06)
    page.get_by_label("backward").check()
    shown = [float(t.split("\n")[-1].removesuffix(" bits")) for t in words.all_inner_texts()]
    np.testing.assert_allclose(shown, expected.backward / math.log(2), atol=0.06)
    assert "unknown" in words.nth(4).get_attribute("class")
    perplexity = scorer.perplexity([WORDS]).mean
    assert f"mean {perplexity:.2f}" in page.locator("#perplexity").inner_text()

    words.nth(1).click()
    page.locator("[data-direction=both] tbody tr").first.wait_for()
    for direction in ("forward", "backward", "both"):
        (likely,) = scorer.substitutes([WORDS], [1], 10, direction)  # type: ignore[arg-type]
        rows = page.locator(f"[data-direction={direction}] tbody tr").all()
        found = [row.locator("td").all_inner_texts() for row in rows]
        assert [word for word, _ in found] == [word for word, _ in likely]
        shares = [float(share.rstrip("%")) / 100 for _, share in found]
        np.testing.assert_allclose(shares, [p for _, p in likely], atol=1e-4)


def test_hostile_text_is_displayed_as_text(page: Any) -> None:
    words = score(page, HOSTILE)
    assert [text.split("\n")[0] for text in words.all_inner_texts()] == HOSTILE.split()
    assert page.locator("#views img").count() == 0


def test_context_shows_neighbours_and_a_map(page: Any, place: Path) -> None:
    view = open_tab(page, "Word in context")
    view.get_by_role("textbox").fill("the bank floods the river .")
    view.get_by_role("button", name="Split").click()
    view.get_by_role("button", name="bank").click()
    view.locator("#neighbours section").nth(2).wait_for()
    embedder = Embedder(tiny(), device="cpu")
    for layer in range(3):
        items = view.locator("#neighbours section").nth(layer).locator("li").all()
        assert len(items) == 10
        for item in items[:3]:
            cosine, sentence = item.locator("> span").all_inner_texts()
            words = sentence.split()
            arrays = embedder.embed(["the bank floods the river .", words])
            place_of = [word.lower() for word in words].index("bank")
            first, second = arrays[0][layer, 1], arrays[1][layer, place_of]
            expected = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
            assert float(cosine) == pytest.approx(expected, abs=3e-3)  # the index is in float16
    points = view.locator("svg.map circle")
    points.first.hover(force=True)
    view.locator(".caption mark").wait_for()
    assert view.locator(".caption mark").inner_text().lower() == "bank"
    view.get_by_role("radio", name="mix").check()
    view.get_by_role("heading", name="Map: mix").wait_for()
    assert view.locator("#neighbours section").count() == 4


def test_compare_shows_cosines(page: Any) -> None:
    view = open_tab(page, "Compare")
    view.get_by_label("First sentence").fill("the bank floods")
    view.get_by_label("Second sentence").fill("a bank lends money")
    view.get_by_role("button", name="Compare").click()
    view.locator("table.heat tbody tr").nth(2).wait_for()
    first, second = Embedder(tiny(), device="cpu").embed(["the bank floods", "a bank lends money"])

    def check(weights: list[float]) -> None:
        a, b = (np.tensordot(weights, array, 1) for array in (first, second))
        a, b = (own / np.linalg.norm(own, axis=1, keepdims=True) for own in (a, b))
        rows = view.locator("table.heat tbody tr").all()
        shown = [[float(t) for t in row.locator("td").all_inner_texts()] for row in rows]
        np.testing.assert_allclose(shown, a @ b.T, atol=0.006)

    check([0, 0, 1])
    view.get_by_role("radio", name="layer 0").check()
    check([1, 0, 0])
    view.get_by_role("radio", name="mix").check()
    check([1 / 3, 1 / 3, 1 / 3])
    view.get_by_role("slider", name="layer 0").fill("2")
    powers = np.exp([2.0, 0.0, 0.0])
    check((powers / powers.sum()).tolist())


def test_classifier_shows_probabilities_and_attention(page: Any, place: Path) -> None:
    view = open_tab(page, "Classifier")
    view.get_by_role("textbox", name="Text").fill("the bank near water")
    view.get_by_role("button", name="Classify").click()
    view.get_by_role("heading", name="Attention").wait_for()
    expected = TextClassifier.from_pretrained(place / "report", device="cpu").explain(
        "the bank near water"
    )
    shown = [float(t.rstrip("%")) / 100 for t in view.locator(".bar .number").all_inner_texts()]
    np.testing.assert_allclose(shown, sorted(expected.probabilities, reverse=True), atol=6e-4)
    assert expected.weights is not None
    weights = [float(t.rstrip("%")) / 100 for t in view.locator(".word small").all_inner_texts()]
    np.testing.assert_allclose(weights, expected.weights, atol=6e-3)


def test_tagger_shows_tags_and_spans(page: Any, place: Path) -> None:
    view = open_tab(page, "Classifier")
    view.get_by_role("textbox", name="Sentence to tag").fill("First second sat")
    view.get_by_role("button", name="Tag").click()
    view.get_by_role("heading", name="Tags").wait_for()
    tagger = Tagger.from_pretrained(place / "tagging" / "report", device="cpu")
    (expected,) = tagger.predict(["First second sat"])
    shown = [text.split("\n") for text in view.locator("#tagger-result .word").all_inner_texts()]
    assert shown == [[word.word, word.tag] for word in expected.words]
    spans = view.locator("#tagger-result li").all_inner_texts()
    assert spans == [f"{span.type} {span.text}" for span in expected.spans]


def test_runs_update_while_training(page: Any, place: Path) -> None:
    view = open_tab(page, "Runs")
    view.get_by_text("held-out perplexity: 40").wait_for()
    add_metrics(place, 3, 30.0)
    view.get_by_text("held-out perplexity: 30").wait_for()
    assert view.locator("svg.chart polyline").count() == 3


def test_sends_the_token_of_its_address(browser: Any, place: Path) -> None:
    token = "0123456789 a%b/c:d"
    with serving(place / "model", BILM_TOKEN=token) as server:
        assert server.post("/v1/score", {"sentences": ["the"]})[0] == 401
        page = browser.new_page()
        page.goto(server.address)
        page.get_by_role("tab", name="Sentence").wait_for()
        assert "token" not in page.url
        assert score(page, "the bank").count() == 2
        page.close()


def test_works_with_the_keyboard_alone(page: Any) -> None:
    page.get_by_role("tab", name="Sentence").focus()
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("tab", name="Word in context").get_attribute("aria-selected") == "true"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Tab")
    page.keyboard.press("Control+A")
    page.keyboard.type("the bank")
    page.keyboard.press("Enter")
    page.locator("#view-sentence .word").nth(1).wait_for()
    for _ in range(4):  # the button, the radio buttons, two words
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator("[data-direction=forward] tbody tr").first.wait_for()
    assert page.locator("#view-sentence .word[aria-pressed=true]").inner_text().startswith("bank")


def test_dark_mode_and_small_screens(page: Any) -> None:
    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    page.emulate_media(color_scheme="light")
    light = background()
    page.emulate_media(color_scheme="dark")
    assert background() != light
    page.set_viewport_size({"width": 360, "height": 640})
    score(page, " ".join(["incomprehensibilities"] * 12))
    for name in TABS:
        open_tab(page, name)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_has_no_serious_accessibility_problems(page: Any, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page.emulate_media(color_scheme=scheme)
    score(page, SENTENCE).nth(1).click()
    page.locator("[data-direction=both] tbody tr").first.wait_for()
    view = open_tab(page, "Word in context")
    view.get_by_role("button", name="Split").click()
    view.get_by_role("button", name="bank").click()
    view.locator("svg.map").wait_for()
    open_tab(page, "Compare").get_by_role("button", name="Compare").click()
    page.locator("table.heat").wait_for()
    for name in TABS:
        open_tab(page, name)
        found = axe.Axe().run(page).response["violations"]
        serious = [
            (own["id"], [node["html"][:200] for node in own["nodes"][:3]])
            for own in found
            if own["impact"] in ("serious", "critical")
        ]
        assert serious == [], name
