"""docs/architecture.md names every module and only files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGE = ROOT / "docs" / "architecture.md"
PACKAGES = ("bilm", "data_tools", "downstream")

_SECTION = re.compile(r"^### `([\w/]+)/`\n(.*?)(?=^##)", re.MULTILINE | re.DOTALL)
_PATH = re.compile(r"`((?:bilm|data_tools|downstream|tests|docs|benchmarks|launch)/[\w/.]+\.\w+)`")


def listed_modules() -> dict[str, set[str]]:
    """Return the modules that the tables of the page name, by directory."""
    sections = _SECTION.findall(PAGE.read_text(encoding="utf-8"))
    return {
        directory: {
            name
            for row in re.findall(r"^\| (`.*?) \|", body, re.MULTILINE)
            for name in re.findall(r"`([\w.]+)`", row)
        }
        for directory, body in sections
    }


def directories() -> list[Path]:
    found = {path.parent for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    return sorted(found)


@pytest.mark.parametrize("directory", directories(), ids=lambda d: str(d.relative_to(ROOT)))
def test_lists_every_module(directory: Path) -> None:
    modules = {path.name for path in directory.iterdir() if path.suffix in (".py", ".c", ".h")}
    listed = listed_modules().get(str(directory.relative_to(ROOT)), set())
    assert listed == modules - {"__init__.py"}


def test_lists_only_directories_that_exist() -> None:
    assert {ROOT / directory for directory in listed_modules()} == set(directories())


@pytest.mark.parametrize("page", [PAGE, *sorted(ROOT.glob("*.md"))], ids=lambda page: page.name)
def test_names_only_files_that_exist(page: Path) -> None:
    named = set(_PATH.findall(page.read_text(encoding="utf-8")))
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
