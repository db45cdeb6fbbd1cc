"""Wording that the writing guide in CONTRIBUTING.md advises against."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

PHRASES = re.compile(
    r"""
    \bgo(es)?\ on\b(?!\ to\b) | \bwent\ on\b | \bgone\ on\b | \bstands?\ (beside|there|at)\b
    | \banew\b | (?<!there\ )\bis\ no\ (?!longer)[a-z] | \bholds?\ no\b | \bsays?\ so\b
    | \blikewise\b | \bso\ many\b | \bof\ ours\b | \bthe\ house\b | \bthe\ walk\b | \bis\ whole\b
    | \bbelieved\b | \bwhatever\b | \bmend(ed|s)?\b | \bsay\ --[a-z]
    | \bone\ a\ line\b | \ba\ (sentence|word|document|figure)\ a\ line\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
# The code writes tokenizer, optimizer, normalize; so does the prose.
SPELLING = re.compile(
    r"\b(token|optim|initial|normal|standard|regular|recogn|serial|parallel|vector|memor)is"
    r"(e|es|ed|er|ers|ing|ation|ations)\b|\b(behaviour|colour)s?\b",
    re.IGNORECASE,
)
DIRECTORIES = (
    "bilm",
    "data_tools",
    "downstream",
    "launch",
    "experiments",
    "benchmarks",
    "docs",
    "tests",
)
SUFFIXES = (".py", ".c", ".md", ".svg")


def texts() -> list[Path]:
    """Return every file of code or prose, except this one."""
    nested = (path for name in DIRECTORIES for path in (ROOT / name).rglob("*"))
    found = [path for path in (*nested, *ROOT.glob("*.md")) if path.suffix in SUFFIXES]
    settings = [ROOT / name for name in ("Makefile", "pyproject.toml", "setup.py")]
    return sorted({*found, *settings} - {Path(__file__).resolve()})


@pytest.mark.parametrize("path", texts(), ids=lambda p: str(p.relative_to(ROOT)))
def test_wording(path: Path) -> None:
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = PHRASES.search(line) or SPELLING.search(line)
        if match:
            found.append(f"line {number}: {match[0]!r} in {line.strip()[:90]!r}")
    assert not found, "\n".join(found)
