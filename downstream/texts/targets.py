"""Targets of texts that are not one class: sets of labels, and numbers.

The labels of a text are separated by a separator, or are a list of strings in JSON and Parquet
files; a text may have no label. A number is decimal or in scientific notation. Errors name the file
and the line.
"""

from __future__ import annotations

import math
import re
from functools import partial
from pathlib import Path
from typing import Any

from bilm.errors import CorpusError
from bilm.text.tables import checked_text
from downstream.texts.labelled import TargetTexts, TextColumns, read_targets

# What float() accepts besides, such as 1_0 and digits of other scripts, is an error.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_MAX_NUMBER = 1e30  # numbers are computed in float32


def read_label_sets(
    path: Path | str, columns: TextColumns, separator: str
) -> TargetTexts[tuple[str, ...]]:
    """Read texts with any number of labels each."""
    return read_targets(path, columns, partial(_label_set, separator=separator))


def read_numbers(path: Path | str, columns: TextColumns) -> TargetTexts[float]:
    """Read texts with one number each."""
    return read_targets(path, columns, _number)


def _label_set(value: Any, place: str, separator: str) -> tuple[str, ...]:
    if isinstance(value, list):
        labels = [_one_label(item, place).strip() for item in value]
        for label in labels:
            if separator in label:
                raise CorpusError(
                    f"{place}: the label {label!r:.60} contains {separator!r}, which separates "
                    "labels; rename it, or pass another --label-separator"
                )
    else:
        text = _one_label(value, place)
        labels = [label.strip() for label in text.split(separator)] if text.strip() else []
    for i, label in enumerate(labels):
        if not label:
            raise CorpusError(
                f"{place}: the labels {value!r:.60} contain an empty label; remove it"
            )
        if label in labels[:i]:
            raise CorpusError(
                f"{place}: the labels {value!r:.60} contain {label!r} twice; remove one of them"
            )
    return tuple(labels)


def _one_label(value: Any, place: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise CorpusError(
            f"{place}: the label is {value!r:.60}; expected a string, an integer, or a list of them"
        )
    return checked_text(str(value), f"{place}: the label")


def _number(value: Any, place: str) -> float:
    number = math.nan
    is_written = not isinstance(value, str) or _NUMBER.fullmatch(value.strip()) is not None
    if isinstance(value, (str, int, float)) and not isinstance(value, bool) and is_written:
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
    if not abs(number) < _MAX_NUMBER:
        raise CorpusError(
            f"{place}: the label is {value!r:.60}; expected a number such as 2.5 or -1e-3, in "
            "ASCII "
            f"digits, between -{_MAX_NUMBER:g} and {_MAX_NUMBER:g}"
        )
    return number
