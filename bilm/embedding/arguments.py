"""Checks of the arguments of `Elmo` and `Scorer`: integers, flags, rates, the options of a mix."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, cast

import numpy as np
import torch
from torch import Tensor

from bilm.errors import ConfigError
from bilm.pretrained.model_directory import PretrainedBiLm


class MixOptions(TypedDict, total=False):
    """The options of every mix; `ScalarMix` describes them and checks their ranges."""

    dropout: float
    layer_norm: bool
    penalty: float
    initial_weights: Sequence[float]


DEFAULT_MIX = MixOptions(dropout=0.5, layer_norm=False, penalty=1e-3)


def integer(name: str, value: Any) -> int:
    """Return `value` as an `int`; integers of NumPy and PyTorch are accepted, booleans are not."""
    is_boolean = isinstance(value, bool) or getattr(value, "dtype", None) in (np.bool_, torch.bool)
    if not is_boolean:
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(f"{name} is {shown(value)}; it must be an integer")


def positive_integer(name: str, value: Any) -> int:
    """Return `value` as an `int` that is at least 1."""
    number = integer(name, value)
    if number < 1:
        raise ConfigError(f"{name} is {number}; it must be at least 1")
    return number


def check_model(model: Any) -> None:
    """Check that `model` is a `PretrainedBiLm`, or a path or name of one."""
    if not isinstance(model, PretrainedBiLm | Path | str):
        raise TypeError(
            f"model is {shown(model)}; it must be a PretrainedBiLm, or a path or name of a model"
        )


def check_flags(**flags: Any) -> None:
    """Check that all arguments are booleans."""
    for name, flag in flags.items():
        if not isinstance(flag, bool | np.bool_):
            raise TypeError(f"{name} is {shown(flag)}; it must be True or False")


def rate(name: str, value: Any, highest: float = math.inf) -> float:
    """Return `value` as a finite `float` from 0 to `highest`."""
    number = _real(name, value)
    if not (0 <= number <= highest and math.isfinite(number)):
        rule = "finite and at least 0" if highest == math.inf else f"from 0 to {highest:g}"
        raise ConfigError(f"{name} is {number}; it must be {rule}")
    return number


def mix_options(given: Mapping[str, Any]) -> MixOptions:
    """Return the options of a mix with the defaults, after checks of their names and types."""
    for name, value in given.items():
        if name not in MixOptions.__annotations__:
            names = ", ".join(MixOptions.__annotations__)
            raise TypeError(
                f"Elmo has no argument {name!r}; the options of its mixes are {names}. "
                "docs/migration.md lists the arguments of other libraries."
            )
        if name == "layer_norm":
            check_flags(layer_norm=value)
        elif name == "initial_weights":
            _check_weights(name, value)
        else:
            rate(name, value)
    return cast(MixOptions, {**DEFAULT_MIX, **given})


def shown(value: Any) -> str:
    """Return a short description of `value` for a message."""
    return "a tensor" if isinstance(value, Tensor) and value.ndim else f"{value!r:.60}"


def _real(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} is {shown(value)}; it must be a number")
    return float(value)


def _check_weights(name: str, values: Any) -> None:
    if values is None:
        return  # the default of `ScalarMix`
    if not isinstance(values, Sequence | np.ndarray | Tensor) or isinstance(values, str):
        raise TypeError(f"{name} is {shown(values)}; it must be a list of numbers, one per layer")
    for i, value in enumerate(values):
        number = value.item() if isinstance(value, Tensor) and value.ndim == 0 else value
        if not math.isfinite(_real(f"{name}[{i}]", number)):
            raise ConfigError(f"{name}[{i}] is {number}; it must be finite")
