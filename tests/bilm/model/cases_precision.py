"""The dtypes of the products of a training step, on the CPU and on the second device."""

from __future__ import annotations

import pytest
import torch

from bilm.kernels import backends
from bilm.model.precision import Precision
from tests.bilm.model.product_dtypes import products_of_a_step
from tests.second_device.device import second_device

# The tables of the character CNN are products in float64 in any precision.
EXPECTED = {
    "float32": {torch.float32, torch.float64},
    "tf32": {torch.float32, torch.float64},
    "bfloat16": {torch.bfloat16, torch.float64},
}


@pytest.mark.parametrize("kind", ["sampled", "full"])
@pytest.mark.parametrize("precision", EXPECTED)
@pytest.mark.parametrize("place", ["cpu", "second"])
def test_products_run_in_the_configured_precision(
    place: str, precision: Precision, kind: str
) -> None:
    device = second_device()
    products = products_of_a_step("cpu" if place == "cpu" else device, precision, kind)
    assert products.count > 30
    expected = EXPECTED[precision]
    if backends.choose(torch.zeros(1, device="cpu" if place == "cpu" else device)) == "torch":
        expected = expected - {torch.float64}
    assert products.dtypes == expected
