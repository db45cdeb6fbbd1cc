from __future__ import annotations

from docs.config_page import config_table
from tests.conftest import ROOT


def test_config_page_is_current() -> None:
    page = (ROOT / "docs" / "config.md").read_text(encoding="utf-8")
    assert page == config_table(), "run: python docs/config_page.py > docs/config.md"
