"""The output that the first screen of README.md shows is that of its code."""

from __future__ import annotations

import contextlib
import io
import re

import pytest

from tests.conftest import ROOT
from tests.docs.pages import blocks


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+\.\d*", text)]


def test_first_screen_shows_the_real_output() -> None:
    code, output = blocks(ROOT / "README.md")[:2]
    assert (code.language, output.language) == ("python", "text")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code.code, "README.md", "exec"), {})
    assert numbers(printed.getvalue()) == pytest.approx(numbers(output.code), abs=0.011)
    assert len(numbers(output.code)) == 16
