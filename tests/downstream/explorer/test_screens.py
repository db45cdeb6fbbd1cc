"""The page on screens of two sizes, in dark mode, and for assistive technology."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service needs: pip install 'bilm[serve]'")

from tests.downstream.explorer.browser import expect
from tests.downstream.explorer.pages import TABS, classify, open_tab, score

pytestmark = [pytest.mark.slow, pytest.mark.launch]

SENTENCE = "the bank floods the unheard river ."
SCREENS = [(1280, 800), (390, 844)]
PHONE = {"width": 390, "height": 844}
IS_SCROLLED = "place => place.scrollWidth > place.clientWidth"


def test_heat_map_fits_on_a_phone(page: Any) -> None:
    page.set_viewport_size(PHONE)
    view = open_tab(page, "Compare")  # with the example, eight words in each sentence
    view.locator("table.heat").wait_for()
    assert not view.locator(".scroll").evaluate(IS_SCROLLED)


def test_wide_heat_map_is_scrolled_with_its_first_column(page: Any) -> None:
    page.set_viewport_size(PHONE)
    view = open_tab(page, "Compare")
    view.get_by_label("Second sentence").fill(" ".join(["incomprehensible"] * 40))
    view.get_by_role("button", name="Compare").click()
    expect(view.locator("table.heat thead th")).to_have_count(40)
    place, last = view.locator(".scroll"), view.locator("table.heat thead th").last
    assert place.evaluate(IS_SCROLLED)
    last.scroll_into_view_if_needed()
    box, first = last.bounding_box(), view.locator("table.heat tbody th").first.bounding_box()
    assert 0 <= first["x"] < box["x"] < box["x"] + box["width"] <= PHONE["width"]


def test_dark_mode_and_screens(page: Any) -> None:
    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    page.emulate_media(color_scheme="light")
    light = background()
    page.emulate_media(color_scheme="dark")
    assert background() != light
    score(page, " ".join(["incomprehensibilities"] * 12 + ["x" * 400]))
    classify(page, "the bank near water")
    for width, height in SCREENS:
        page.set_viewport_size({"width": width, "height": height})
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
    view.locator("svg.map").wait_for()
    open_tab(page, "Compare").locator("table.heat").wait_for()
    classify(page, "the bank near water")
    for name in TABS:
        open_tab(page, name)
        found = axe.Axe().run(page).response["violations"]
        serious = [
            (own["id"], [node["html"][:200] for node in own["nodes"][:3]])
            for own in found
            if own["impact"] in ("serious", "critical")
        ]
        assert serious == [], name
