"""Checks of the texts and parameters that are passed to the scikit-learn estimators."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bilm.errors import ConfigError
from downstream.settings.mix_kinds import MIX_NAMES, MixKind

Texts = Sequence[str] | npt.NDArray[Any]


def as_texts(X: Texts) -> list[str]:
    """Convert a list, a one-dimensional array or a single column of strings to a list."""
    from scipy.sparse import issparse  # type: ignore[import-untyped]

    if isinstance(X, str | bytes):
        raise ValueError(f"expected a list of texts, not the single text {X[:40]!r}; pass [text]")
    if issparse(X):
        raise TypeError("sparse input is not supported; pass a list of strings")
    if not isinstance(X, list | tuple):
        array = np.asarray(X, dtype=object)
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        if array.ndim != 1:
            raise ValueError(
                "expected a list or a one-dimensional array of strings, not an array of shape "
                f"{array.shape}"
            )
        X = array.tolist()
    texts = list(X)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            is_missing = isinstance(text, float) and np.isnan(text)
            raise ValueError(
                f"text {i} is {'NaN, a missing value' if is_missing else repr(text)}; texts must "
                "be strings. Remove it, or replace it with ''"
            )
    if not texts:
        raise ValueError("there are no texts: 0 sample(s); at least one is required")
    return texts


def as_pairs(X: Sequence[Sequence[str]] | npt.NDArray[Any]) -> list[tuple[str, str]]:
    """Convert a list of pairs, or an array or a data frame with two columns, to a list of pairs."""
    if isinstance(X, str | bytes):
        raise ValueError(f"expected a list of pairs of texts, not the text {X[:40]!r}")
    rows = list(X) if isinstance(X, list | tuple) else list(np.asarray(X, dtype=object))
    if not rows:
        raise ValueError("there are no pairs: 0 sample(s); at least one is required")
    pairs = []
    for i, row in enumerate(rows):
        texts = () if isinstance(row, str | bytes) or not hasattr(row, "__len__") else tuple(row)
        if len(texts) != 2 or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"pair {i} is {row!r:.60}; a pair consists of two strings")
        pairs.append((str(texts[0]), str(texts[1])))
    return pairs


def check_mix(mix: object) -> None:
    """Raise ConfigError unless `mix` is one that reads layers; estimators have no word vectors."""
    try:
        if mix != "none":
            MixKind.parse(str(mix))
            return
    except ValueError:
        pass
    allowed = MIX_NAMES.removesuffix(", none")
    raise ConfigError(f"mix is {str(mix)!r:.60}; it must be one of {allowed}")


def check_one_of(name: str, value: object, allowed: Collection[str]) -> None:
    """Raise ValueError unless `value` is one of the allowed names."""
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(allowed)}")


def check_at_least(name: str, value: object, least: int) -> None:
    """Raise ValueError unless `value` is an integer of at least `least`."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} is {value!r}; it must be an integer of at least {least}")


def with_python_numbers(value: Any) -> Any:
    """Convert NumPy numbers, which a parameter search may pass, to Python numbers."""
    if isinstance(value, dict):
        return {key: with_python_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [with_python_numbers(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def parameters_of(tree: dict[str, Any], own: Mapping[str, str]) -> dict[str, str]:
    """Return the parameter of each setting in a tree of sections, by the path of the setting.

    It has the name of the setting, except for the paths in `own`.
    """
    paths = {
        f"{section}.{name}": name
        for section, values in tree.items()
        if isinstance(values, dict)
        for name in values
    }
    return {**paths, **own}


def is_indicator_matrix(y: Any) -> bool:
    """Return whether the targets are a matrix of several columns, dense or sparse."""
    from scipy.sparse import issparse

    if issparse(y):
        return True
    shape = np.shape(np.asarray(y, dtype=object))
    return len(shape) == 2 and shape[1] > 1


def as_indicators(y: Any) -> npt.NDArray[np.float32]:
    """Return an indicator matrix of labels (texts, labels) as float32."""
    from scipy.sparse import issparse

    array = np.asarray(y.toarray() if issparse(y) else y)
    if array.dtype.kind not in "biuf" or not np.isin(array, (0, 1)).all():
        raise ValueError(
            "y is a matrix, but not an indicator matrix of labels: its values must be 0 and 1"
        )
    if not array.any():
        raise ValueError("no text has a label: all values of y are 0; at least one label is needed")
    return array.astype(np.float32)


def as_numbers(y: Any) -> npt.NDArray[np.float32]:
    """Return the numbers of a regression, one per text, as float32."""
    from sklearn.utils import check_array, column_or_1d

    array = column_or_1d(y, warn=True)
    checked = check_array(array, ensure_2d=False, dtype=np.float64, input_name="y")
    if np.abs(checked).max() > np.finfo(np.float32).max:
        raise ValueError("y contains numbers that are too large for float32; scale them")
    numbers: npt.NDArray[np.float32] = checked.astype(np.float32)
    if len(numbers) > 1 and (numbers == numbers[0]).all():
        raise ValueError(
            f"all {len(numbers):,} values of y are {numbers[0]:g}; regression needs different "
            "numbers"
        )
    return numbers
