"""Run cases of the embedder, `Elmo` and `Scorer` on the second device in their own process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.own_process import run_cases


@pytest.mark.slow
def test_cases_of_the_second_device() -> None:
    here = Path(__file__)
    names = ("cases_second_device.py", "cases_elmo_device.py")
    run_cases(*(here.with_name(name) for name in names))
