"""The embedder on the second device: the vectors of the CPU, in any form and state mode."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from bilm.embedding.embedder import Embedder, Limits, StateMode
from bilm.embedding.output import FloatArray, Output
from bilm.model.precision import Precision
from bilm.pretrained.digests import model_digest
from bilm.pretrained.model_directory import PretrainedBiLm
from tests.bilm.embedding.golden_model import SENTENCES
from tests.conftest import GOLDEN
from tests.second_device.device import counting, second_device
from tests.second_device.products import ProductDtypes

OUTPUTS = [
    Output(),
    Output(layers="top"),
    Output(layers=[0.2, 0.3, 0.5], pool="mean_max"),
    Output(layers="average", pool="max"),
]
SMALL = Limits(batch_words=40, window_words=60, cached_words=20)


@pytest.fixture
def device() -> str:
    return second_device()


@pytest.fixture
def pretrained() -> PretrainedBiLm:
    return PretrainedBiLm.from_published(GOLDEN / "options.json", GOLDEN / "weights.hdf5")


def check_same(ours: list[FloatArray], expected: list[FloatArray], tolerance: float = 1e-6) -> None:
    assert len(ours) == len(expected)
    for array, other in zip(ours, expected, strict=True):
        assert isinstance(array, np.ndarray)
        assert array.dtype == other.dtype == np.float32
        np.testing.assert_allclose(array, other, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("state", ["reset", "warm", "carry"])
@pytest.mark.parametrize("output", OUTPUTS, ids=str)
def test_vectors_equal_those_of_the_cpu(
    device: str, pretrained: PretrainedBiLm, state: StateMode, output: Output
) -> None:
    ours = Embedder(pretrained, SMALL)  # the default is the accelerator
    expected = Embedder(pretrained, SMALL, device="cpu")
    assert ours.device == torch.device(device)
    for _ in range(2):  # the second call continues carried states, and reads cached words
        check_same(
            ours.embed(SENTENCES, state, 4, output), expected.embed(SENTENCES, state, 4, output)
        )


def test_streams(device: str, pretrained: PretrainedBiLm) -> None:
    ours = Embedder(pretrained, SMALL, device).stream(iter(SENTENCES))
    check_same(list(ours), Embedder(pretrained, SMALL, "cpu").embed(SENTENCES))


def test_the_model_of_the_caller_stays_where_it_is(device: str, pretrained: PretrainedBiLm) -> None:
    digest = model_digest(pretrained)
    embedder = Embedder(pretrained, device=device)
    assert {weight.device.type for weight in pretrained.model.parameters()} == {"cpu"}
    assert model_digest(embedder.pretrained) == digest
    copied = copy.deepcopy(embedder)
    check_same(copied.embed(SENTENCES[:3]), embedder.embed(SENTENCES[:3]))


def test_shares_the_weights_of_a_model_on_the_device(
    device: str, pretrained: PretrainedBiLm
) -> None:
    expected = Embedder(pretrained, device="cpu").embed(SENTENCES[:3])
    pretrained.model.to(device)
    embedder = Embedder(pretrained)
    check_same(embedder.embed(SENTENCES[:3]), expected)
    with torch.no_grad():
        for weight in pretrained.model.parameters():
            weight.zero_()
    assert all((array == 0).all() for array in embedder.embed(SENTENCES[:3]))
    back = Embedder(pretrained, device="cpu").embed(SENTENCES[:3])
    assert all((array == 0).all() for array in back)


def test_copies_each_batch_once_per_direction(device: str, pretrained: PretrainedBiLm) -> None:
    embedder = Embedder(pretrained, device=device)
    embedder.embed(SENTENCES)
    with counting() as counts:
        embedder.embed(SENTENCES)
    assert counts.synchronizations["copy to host"] <= 2 + 4  # results, and lengths by each LSTM
    assert "copy to device" not in counts.synchronizations


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
@pytest.mark.parametrize("on_cpu", [True, False], ids=["cpu", "second device"])
def test_dtype_of_products(
    device: str, pretrained: PretrainedBiLm, precision: Precision, on_cpu: bool
) -> None:
    name = "cpu" if on_cpu else device
    embedder = Embedder(pretrained, device=name, precision=precision)
    with ProductDtypes() as products:
        arrays = embedder.embed(SENTENCES, "carry", len(SENTENCES))
    # On the CPU, the tables of the character CNN are computed in float64.
    expected = torch.bfloat16 if precision == "bfloat16" else torch.float32
    assert products.dtypes - {torch.float64} == {expected}
    assert embedder._carried is not None
    assert {tensor.dtype for tensor in embedder._carried} == {torch.float32}
    exact = Embedder(pretrained, device="cpu").embed(SENTENCES, "carry", len(SENTENCES))
    check_same(arrays, exact, 0.1 if precision == "bfloat16" else 1e-6)
