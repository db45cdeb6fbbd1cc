"""Run the cases of the model that need the second device or Triton's interpreter."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.bilm.conftest import needs_compiler
from tests.own_process import run_cases

PRECISION = Path(__file__).with_name("cases_precision.py")
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)

pytestmark = pytest.mark.slow


@needs_compiler
@needs_triton
def test_triton_matches_c() -> None:
    run_cases(Path(__file__).with_name("cases_triton.py"), TRITON_INTERPRET="1")


def test_dtypes_of_products() -> None:
    run_cases(PRECISION)


@needs_triton
def test_dtypes_of_products_around_triton_kernels() -> None:
    run_cases(PRECISION, TRITON_INTERPRET="1", BILM_KERNELS="triton")
