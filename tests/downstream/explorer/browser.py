"""A headless Chromium for tests of the page, or a reason to skip them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
TIMEOUT_MILLISECONDS = 120_000  # for a slow machine; events end the waiting


def expect(locator: Any) -> Any:
    """Return assertions about a locator, which wait until they are true."""
    from playwright import sync_api

    sync_api.expect.set_options(timeout=TIMEOUT_MILLISECONDS)
    return sync_api.expect(locator)


@contextmanager
def chromium(directory: Path) -> Iterator[Any]:
    """Start Chromium with a new profile, and yield its context."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (pip install playwright)"
    )
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip(f"none of {', '.join(PROGRAMS)} is installed")
    with playwright.sync_playwright() as driver:
        context = driver.chromium.launch_persistent_context(
            str(directory / "profile"),
            executable_path=program,
            headless=True,
            args=list(ARGUMENTS),
            timeout=TIMEOUT_MILLISECONDS,
        )
        context.set_default_timeout(TIMEOUT_MILLISECONDS)
        try:
            yield context
        finally:
            context.close()
