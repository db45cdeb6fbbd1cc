"""Run the cases of the model with the Triton kernels in a process of their own."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.bilm.conftest import needs_compiler
from tests.own_process import run_cases


@pytest.mark.slow
@needs_compiler
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_cases_match_c() -> None:
    run_cases(Path(__file__).with_name("cases_triton.py"), TRITON_INTERPRET="1")
