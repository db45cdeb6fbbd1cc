"""Wording that the writing guide in CONTRIBUTING.md advises against."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

PHRASES = re.compile(
    r"""
    \bgo(es)?\ on\b(?!\ to\b) | \bwent\ on\b | \bgone\ on\b | \bstands?\ (beside|there|at)\b
    | \banew\b | (?<!there\ )\bis\ no\ (?!longer)[a-z] | \bholds?\ no\b | \bsays?\ so\b | \blikewise\b | \bso\ many\b
    | \bof\ ours\b | \bthe\ house\b | \bthe\ walk\b | \bis\ whole\b | \bbelieved\b | \bone\ a\ line\b
    | \bsay\ --[a-z] | \bwhatever\b | \bmend(ed|s)?\b | \b(a|an)\ (sentence|word|document|figure)\ a\ line\b
    """,
    re.IGNORECASE | re.VERBOSE,
)
# The code writes tokenizer, optimizer, normalize; so does the prose.
SPELLING = re.compile(
    r"\b(token|optim|initial|normal|standard|regular|recogn|serial|parallel|vector|memor)is"
    r"(e|es|ed|er|ers|ing|ation|ations)\b|\b(behaviour|colour)s?\b",
    re.IGNORECASE,
)
SUFFIXES = {".py", ".md", ".c", ".toml", ".txt", ".svg", ""}


def texts() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    paths = (ROOT / name for name in listed.stdout.splitlines())
    return [
        p
        for p in paths
        if p.suffix in SUFFIXES and p.name != Path(__file__).name and "golden" not in p.parts
    ]


@pytest.mark.parametrize("path", texts(), ids=lambda p: str(p.relative_to(ROOT)))
def test_wording(path: Path) -> None:
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = PHRASES.search(line) or SPELLING.search(line)
        if match:
            found.append(f"line {number}: {match[0]!r} in {line.strip()[:90]!r}")
    assert not found, "\n".join(found)
