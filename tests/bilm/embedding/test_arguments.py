"""The checks of the arguments of `Elmo`; those of `Scorer` are tested in `test_scorer.py`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

from bilm import Elmo
from bilm.embedding.arguments import integer, rate
from bilm.errors import ConfigError
from tests.bilm.embedding.elmo_models import tiny

NO_INTEGERS = [True, np.True_, torch.tensor(True), 2.0, np.float32(2), torch.tensor(2.0), "2", None]


@pytest.mark.parametrize("value", [2, np.int64(2), np.uint8(2), np.array(2), torch.tensor(2)])
def test_accepts_integers(value: Any) -> None:
    number = integer("number", value)
    assert type(number) is int
    assert number == 2


@pytest.mark.parametrize("value", NO_INTEGERS, ids=repr)
def test_rejects_other_values_as_integers(value: Any) -> None:
    with pytest.raises(TypeError, match=r"number is .*; it must be an integer"):
        integer("number", value)


@pytest.mark.parametrize("value", [1, 0, 0.5, np.float32(0.5), np.int64(1)], ids=repr)
def test_accepts_rates(value: Any) -> None:
    assert rate("decay", value, 1.0) == float(value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_outputs": "2"}, "num_outputs is '2'; it must be an integer"),
        ({"num_outputs": 2.5}, "num_outputs is 2.5; it must be an integer"),
        ({"num_outputs": True}, "num_outputs is True; it must be an integer"),
        ({"model": None}, "model is None; it must be a PretrainedBiLm, or a path or name"),
        ({"trainable": "no"}, "trainable is 'no'; it must be True or False"),
        ({"keep_boundaries": 1}, "keep_boundaries is 1; it must be True or False"),
        ({"save_frozen": None}, "save_frozen is None; it must be True or False"),
        ({"layer_norm": "no"}, "layer_norm is 'no'; it must be True or False"),
        ({"do_layer_norm": True}, "Elmo has no argument 'do_layer_norm'; the options of its mixes"),
        ({"requires_grad": True}, "Elmo has no argument 'requires_grad'.*docs/migration.md"),
        ({"dropout": "0.5"}, "dropout is '0.5'; it must be a number"),
        ({"dropout": True}, "dropout is True; it must be a number"),
        ({"penalty": None}, "penalty is None; it must be a number"),
        ({"initial_weights": 1.0}, "initial_weights is 1.0; it must be a list of numbers"),
        ({"initial_weights": ["a", 0, 0]}, r"initial_weights\[0\] is 'a'; it must be a number"),
    ],
    ids=str,
)
def test_rejects_values_of_other_types(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Elmo(**{"model": tiny(), **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_outputs": -1}, "num_outputs is -1; it must be at least 1"),
        ({"initial_weights": [0, float("nan"), 0]}, "initial_weights[1] is nan; it must be finite"),
        ({"initial_weights": [0, 0, float("-inf")]}, "initial_weights[2] is -inf; it must be fin"),
        ({"initial_weights": [0.0, 1.0]}, "initial_weights has 2 numbers; it must have 3"),
        ({"dropout": float("nan")}, "dropout is nan; it must be finite and at least 0"),
        ({"penalty": float("inf")}, "penalty is inf; it must be finite and at least 0"),
    ],
    ids=str,
)
def test_rejects_values_outside_their_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=re.escape(message)):
        Elmo(tiny(), **options)


def test_accepts_numbers_and_arrays_of_numpy_and_pytorch() -> None:
    weights = [0.0, -1.0, 2.0]
    for own in (weights, tuple(weights), np.array(weights), torch.tensor(weights)):
        elmo = Elmo(tiny(), np.int64(2), dropout=np.float32(0), initial_weights=own)  # type: ignore[arg-type]
        assert len(elmo.mixes) == 2
        assert elmo.mixes[1].weights.tolist() == weights
    assert Elmo(tiny(), initial_weights=None).mixes[0].weights.tolist() == [0.0, 0.0, 0.0]  # type: ignore[arg-type]


@pytest.mark.parametrize("trainable", [False, True])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1.0,), "learning_rate is -1.0; it must be finite and at least 0"),
        ((float("inf"),), "learning_rate is inf; it must be finite and at least 0"),
        ((0.1, -1), "decay is -1.0; it must be from 0 to 1"),
        ((0.1, 2.6), "decay is 2.6; it must be from 0 to 1"),
        ((0.1, float("nan")), "decay is nan; it must be from 0 to 1"),
    ],
)
def test_rejects_rates_outside_their_range(
    arguments: tuple[float, ...], message: str, trainable: bool
) -> None:
    with pytest.raises(ConfigError, match=message):
        Elmo(tiny(), trainable=trainable).parameter_groups(*arguments)


@pytest.mark.parametrize("value", ["0.1", None, True, [0.1]], ids=repr)
def test_rejects_rates_that_are_not_numbers(value: Any) -> None:
    with pytest.raises(TypeError, match=r"learning_rate is .*; it must be a number"):
        Elmo(tiny()).parameter_groups(value)
    with pytest.raises(TypeError, match=r"decay is .*; it must be a number"):
        Elmo(tiny()).parameter_groups(0.1, value)
