"""The precision of matrix products."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bilm.model.precision import Precision, check_precision, precision_context


def _tf32_settings() -> list[Any]:
    cudnn: Any = torch.backends.cudnn
    matmul: Any = torch.backends.cuda.matmul
    if hasattr(cudnn, "conv"):
        return [owner.fp32_precision == "tf32" for owner in (matmul, cudnn.conv, cudnn.rnn)]
    return [matmul.allow_tf32, cudnn.allow_tf32]


@pytest.mark.parametrize(("precision", "is_enabled"), [("float32", False), ("tf32", True)])
def test_sets_tf32_for_cuda_and_restores_it(precision: Precision, is_enabled: bool) -> None:
    before = _tf32_settings()
    with precision_context(torch.device("cuda"), precision):
        assert set(_tf32_settings()) == {is_enabled}
        with precision_context(torch.device("cuda"), "float32"):
            assert set(_tf32_settings()) == {False}
        assert set(_tf32_settings()) == {is_enabled}
    assert _tf32_settings() == before


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_dtype_of_products_on_the_cpu(precision: Precision) -> None:
    x, before = torch.ones(2, 2), _tf32_settings()
    with precision_context(x.device, precision):
        expected = torch.bfloat16 if precision == "bfloat16" else torch.float32
        assert (x @ x).dtype == expected
        assert (x + x).dtype == torch.float32
        assert _tf32_settings() == before
    assert (x @ x).dtype == torch.float32


def test_rejects_unknown_precision() -> None:
    with pytest.raises(ValueError, match="precision is 'float64'; it must be one of: float32"):
        check_precision("float64")
