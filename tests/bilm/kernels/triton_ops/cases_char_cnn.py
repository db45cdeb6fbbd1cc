"""The character CNN by table look-up compared with convolutions in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from bilm.kernels.char_cnn import plain_filter_maxima
from bilm.kernels.triton_ops.char_cnn import Activation, filter_maxima
from bilm.text.characters import NUM_CHARACTERS, PADDING
from tests.bilm.kernels.triton_ops.comparing import (
    DEVICE,
    DTYPES,
    assert_near,
    gradient,
    leaf,
    random_tensor,
)

ACTIVATIONS = {"none": lambda x: x, "relu": torch.relu, "tanh": torch.tanh}
FILTERS = [(1, 3), (2, 35), (3, 5)]  # width, count


def words_of(lengths: list[int], characters: int = 7) -> Tensor:
    """Return character ids with padding after each length; one word has padding inside."""
    torch.manual_seed(2)
    ids = torch.randint(PADDING, (len(lengths), characters))
    ids[torch.arange(characters) >= torch.tensor(lengths).unsqueeze(1)] = PADDING
    ids[0, 1] = PADDING
    return ids.to(DEVICE)


def weights_of(dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(0)
    embedding = random_tensor(NUM_CHARACTERS, 4, dtype=dtype)
    bias = random_tensor(sum(count for _, count in FILTERS), dtype=dtype)
    filters = [random_tensor(count, 4, width, dtype=dtype) for width, count in FILTERS]
    return [embedding, bias, *filters]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("activation", ["none", "relu", "tanh"])
def test_matches_float64(activation: Activation, dtype: torch.dtype) -> None:
    ids, values = words_of([7, 5, 0, 3]), weights_of(dtype)
    embedding, bias, *filters = tensors = [leaf(value) for value in values]
    y = filter_maxima(ids.to(torch.int16), embedding, filters, bias, activation)
    plain_embedding, plain_bias, *plain_filters = plain = [
        leaf(value, torch.float64) for value in values
    ]
    maxima = plain_filter_maxima(ids, plain_embedding, plain_filters)
    expected = ACTIVATIONS[activation](maxima + plain_bias)
    assert y.dtype == dtype
    grad = random_tensor(*y.shape, dtype=dtype)
    y.backward(grad)
    expected.backward(grad.double())
    assert_near(y, expected, dtype, f"char_cnn {activation}")
    names = ["embedding", "bias", *(f"filter {i}" for i in range(len(filters)))]
    for name, actual, reference in zip(names, tensors, plain, strict=True):
        assert_near(gradient(actual), gradient(reference), dtype, f"char_cnn grad {name}")


def test_bias_is_optional() -> None:
    ids, (embedding, _, *filters) = words_of([2, 6]), weights_of(torch.float32)
    expected = plain_filter_maxima(ids, embedding.double(), [f.double() for f in filters])
    assert_near(filter_maxima(ids, embedding, filters), expected, torch.float32, "char_cnn")
    assert filter_maxima(ids[:0], embedding, filters).shape == (0, len(expected[0]))


def test_backward_is_deterministic() -> None:
    ids, values = words_of([4] * 6), weights_of(torch.float32)
    grads = []
    for _ in range(2):
        embedding, _, *filters = [leaf(value) for value in values]
        filter_maxima(ids, embedding, filters).square().sum().backward()
        grads.append(gradient(embedding))
    assert torch.equal(grads[0], grads[1])


def test_nan_of_one_character_affects_its_words_only() -> None:
    ids, (embedding, _, *filters) = words_of([4, 4, 4]), weights_of(torch.float32)
    ids[:] = ids.clamp(max=99)
    ids[1, 2] = 200
    embedding[200] = math.nan
    y = filter_maxima(ids, embedding, filters)
    assert y[1].isnan().all()
    assert y[[0, 2]].isfinite().all()
