"""Run the cases of the tasks on the second device in a process of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.own_process import run_cases


@pytest.mark.slow
def test_cases_of_the_second_device() -> None:
    run_cases(Path(__file__).with_name("cases_second_device.py"))
