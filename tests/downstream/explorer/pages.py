"""Open the page in a browser, and use its forms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from tests.downstream.explorer.browser import expect
from tests.downstream.explorer.serving import Server

TABS = ("Sentence", "Word in context", "Compare", "Classifier", "Runs")


@contextmanager
def checked_page(browser: Any, server: Server) -> Iterator[Any]:
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
    """Open a view, and return it."""
    page.get_by_role("tab", name=name).click()
    return page.get_by_role("tabpanel", name=name)


def score(page: Any, text: str) -> Any:
    """Score a sentence in the first view, and return its words."""
    page.get_by_role("textbox", name="Sentence").fill(text)
    page.get_by_role("button", name="Score").click()
    words = page.locator("#view-sentence .word")
    expect(words).to_have_text([re.compile("^" + re.escape(word)) for word in text.split()])
    return words


def classify(page: Any, text: str) -> Any:
    """Classify a text, and return the view."""
    view = open_tab(page, "Classifier")
    view.get_by_role("textbox", name="Text").fill(text)
    view.get_by_role("button", name="Classify").click()
    view.get_by_role("heading", name="Effect of each word").wait_for()
    return view
