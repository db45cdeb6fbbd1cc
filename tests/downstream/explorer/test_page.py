"""The page in a real browser: what is displayed agrees with `Embedder` and `Scorer`."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the service needs: pip install 'bilm[serve]'")

from bilm.embedding.embedder import Embedder
from bilm.embedding.scorer import Scorer
from downstream.classifier import TextClassifier
from downstream.predictors.tagger import Tagger
from tests.bilm.embedding.elmo_models import golden, tiny
from tests.downstream.explorer.browser import expect
from tests.downstream.explorer.page_place import add_metrics
from tests.downstream.explorer.pages import TABS, classify, open_tab, score
from tests.downstream.explorer.serving import Server, serving

pytestmark = [pytest.mark.slow, pytest.mark.launch]

SENTENCE = "the bank floods the unheard river ."
WORDS = SENTENCE.split()
HOSTILE = '<img src=x onerror=alert(1)> & "quotes"'


def test_sentence_shows_surprisals_and_predictions(page: Any) -> None:
    words = score(page, SENTENCE)
    scorer = Scorer(tiny(), device="cpu")
    (expected,) = scorer.score([WORDS], combined=True)
    assert expected.combined is not None
    bits = expected.combined / math.log(2)
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
        if direction == "both" and WORDS[1] in dict(likely):  # the same as the combined surprisal
            assert -math.log2(dict(likely)[WORDS[1]]) == pytest.approx(bits[1], abs=1e-3)


def test_hostile_text_is_displayed_as_text(page: Any) -> None:
    words = score(page, HOSTILE)
    assert [text.split("\n")[0] for text in words.all_inner_texts()] == HOSTILE.split()
    assert page.locator("#views img").count() == 0


def test_context_shows_neighbours_and_a_map(page: Any) -> None:
    view = open_tab(page, "Word in context")
    expect(view.locator(".word[aria-pressed=true]")).to_have_text("bank")  # the example
    view.get_by_role("textbox").fill("the bank floods the river .")
    view.get_by_role("button", name="Split into words").click()
    view.get_by_role("button", name="bank").click()  # of this sentence, not of the example
    expect(view.locator(".word")).to_have_text(["the", "bank", "floods", "the", "river", "."])
    expect(view.locator("#neighbours section")).to_have_count(3)
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
    expect(view.locator("#neighbours section").first).to_contain_text("vectors are equal")


def test_context_layers_and_mix_update_everything(page: Any) -> None:
    view = open_tab(page, "Word in context")
    expect(view.locator(".chosen h3")).to_have_text("layer 2")
    expect(view.get_by_role("heading", name="Map: layer 2")).to_be_visible()
    view.get_by_role("radio", name="layer 0").check()
    expect(view.locator(".chosen h3")).to_have_text(re.compile("^layer 0"))
    expect(view.get_by_role("heading", name="Map: layer 0")).to_be_visible()
    view.get_by_role("radio", name="mix").check()
    expect(view.get_by_role("heading", name="Map: mix 0.33, 0.33, 0.33")).to_be_visible()
    expect(view.locator("#neighbours section")).to_have_count(4)
    view.get_by_role("slider", name="layer 0").fill("2")
    expect(view.get_by_role("heading", name="Map: mix 0.79, 0.11, 0.11")).to_be_visible()
    expect(view.locator(".chosen h3")).to_have_text("mix 0.79, 0.11, 0.11")
    view.get_by_role("radio", name="all words").check()
    expect(view.locator("#neighbours")).to_contain_text("river")


def test_context_map_is_selected_by_hover_click_and_keys(page: Any) -> None:
    view = open_tab(page, "Word in context")
    item = view.locator(".chosen li").nth(2)
    item.hover()
    active = view.locator("svg.map circle.active")
    expect(active).to_have_attribute("data-row", item.get_attribute("data-row"))
    expect(item).to_have_class("related")
    text = item.locator("> span").nth(1).inner_text()
    expect(view.locator(".caption")).to_have_text(text)
    expect(view.locator(".caption mark")).to_have_text(re.compile("bank", re.IGNORECASE))
    query = view.locator("svg.map circle.query")  # drawn last, over the other points
    query.click()
    expect(query).to_have_class("query active")
    item.hover()
    expect(query).to_have_class("query active")  # a click keeps the selection
    view.locator("svg.map").focus()
    page.keyboard.press("ArrowRight")
    expect(view.locator("svg.map circle").first).to_have_class("point active")


def test_compare_shows_cosines(page: Any) -> None:
    view = open_tab(page, "Compare")
    view.get_by_label("First sentence").fill("the bank floods")
    view.get_by_label("Second sentence").fill("a bank lends money")
    view.get_by_role("button", name="Compare").click()
    expect(view.locator("table.heat tbody tr")).to_have_count(3)
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


def test_classifier_shows_probabilities_and_words(page: Any, place: Path) -> None:
    view = classify(page, "the bank near water")
    classifier = TextClassifier.from_pretrained(place / "report", device="cpu")
    (expected,) = classifier.explain(["the bank near water"], effects=True)
    label = classifier.classes[int(np.argmax(expected.probabilities))]
    expect(view.get_by_role("heading", name="Class:")).to_have_text(f"Class: {label}")
    shown = [float(t.rstrip("%")) / 100 for t in view.locator(".bar .number").all_inner_texts()]
    np.testing.assert_allclose(shown, sorted(expected.probabilities, reverse=True), atol=6e-4)
    assert expected.weights is not None
    weights = view.locator("#attention .word small").all_inner_texts()
    found = [float(text.rstrip("%")) / 100 for text in weights]
    np.testing.assert_allclose(found, expected.weights, atol=6e-3)
    assert expected.effects is not None
    effects = view.locator("#effects .word small").all_inner_texts()
    found = [float(text.replace("−", "-")) / 100 for text in effects]
    np.testing.assert_allclose(found, expected.effects, atol=6e-4)


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


def test_token_and_a_model_without_softmax_and_tokenizer(browser: Any, place: Path) -> None:
    token = "0123456789 a%b/c:d"
    golden().save_pretrained(place / "golden")
    with serving(place / "golden", BILM_TOKEN=token) as server:
        assert server.post("/v1/embed", {"sentences": [["the"]]})[0] == 401
        page = browser.new_page()
        page.goto(server.address)
        page.get_by_role("tab", name="Sentence").wait_for()
        assert "token" not in page.url
        expect(page.locator("#view-sentence")).to_contain_text("This model has no softmax")
        view = open_tab(page, "Compare")  # splits the example at spaces
        expect(view.locator("table.heat tbody tr")).to_have_count(8)
        expect(open_tab(page, "Word in context")).to_contain_text("bilm explore --text FILE")
        expect(open_tab(page, "Classifier")).to_contain_text("--classifier DIR")
        expect(open_tab(page, "Runs")).to_contain_text("There are no runs")
        expect(page.locator("#status")).to_have_text("")
        page.close()


def test_errors_are_shown(browser: Any, server: Server) -> None:
    page = browser.new_page()
    page.goto(server.address)
    view = open_tab(page, "Classifier")
    view.get_by_role("button", name="Classify").click()
    expect(page.locator("#status.error")).to_contain_text("has no words")
    page.close()


def test_works_with_the_keyboard_alone(page: Any) -> None:
    page.get_by_role("tab", name="Sentence").focus()
    for name in [*TABS[1:], TABS[0]]:
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("tab", name=name)).to_have_attribute("aria-selected", "true")
        expect(page.get_by_role("tabpanel", name=name)).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Control+A")
    page.keyboard.type("the bank")
    page.keyboard.press("Enter")
    expect(page.locator("#view-sentence .word")).to_have_count(2)
    for _ in range(4):  # the button, the radio buttons, two words
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator("[data-direction=forward] tbody tr").first.wait_for()
    assert page.locator("#view-sentence .word[aria-pressed=true]").inner_text().startswith("bank")
