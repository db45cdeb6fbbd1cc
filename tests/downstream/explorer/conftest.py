"""A browser, a service with everything that the page can show, and the open page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.downstream.explorer.browser import chromium
from tests.downstream.explorer.pages import checked_page
from tests.downstream.explorer.serving import Server, serving


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("browser")) as context:
        yield context


@pytest.fixture(scope="module")
def place(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[Server]:
    from tests.downstream.explorer.page_place import make_page_place

    with serving(place / "model", *make_page_place(place)) as own:
        yield own


@pytest.fixture
def page(browser: Any, server: Server) -> Iterator[Any]:
    with checked_page(browser, server) as own:
        yield own
