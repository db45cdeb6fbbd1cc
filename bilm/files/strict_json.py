"""Read JSON strictly: reject input that `json.load` accepts.

Duplicate keys, NaN, infinity, numbers that overflow to infinity, and files that are too large or
nested too deeply raise an error of the caller's type. The message names the file and, for a syntax
error, the line and column.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from bilm.errors import BilmError
from bilm.files.reading import read_regular

MAX_JSON_BYTES = 1 << 20

# How far before a syntax error to search for the last key, in characters.
_MAX_KEY_DISTANCE = 4096


class _StrictnessError(ValueError):
    """Valid JSON breaks one of this module's additional rules."""


class _InvalidNumber(str):
    """The text of a rejected number, kept as the value until its key is known for the message."""


def _checked_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise _StrictnessError(
                f"the key {key!r} is duplicated in one object; remove one of them"
            )
        _reject_numbers(value, f"the value of {key!r}")
        result[key] = value
    return result


def _reject_numbers(value: Any, name: str) -> None:
    if isinstance(value, _InvalidNumber):
        raise _StrictnessError(f"{name} is {value}, which is not a finite number")
    if isinstance(value, list):
        for item in value:
            if type(item) is not int:  # for speed
                _reject_numbers(item, name)


def _finite_float(text: str) -> float | _InvalidNumber:
    return float(text) if math.isfinite(float(text)) else _InvalidNumber(text)


def _short_int(text: str) -> int | _InvalidNumber:
    return int(text) if len(text) <= 30 else _InvalidNumber(f"{text[:10]}... ({len(text)} digits)")


def parse_json(text: str, source: str, error: type[BilmError]) -> Any:
    """Parse `text` strictly; `source` names it in error messages of the type `error`."""
    try:
        tree = json.loads(
            text,
            object_pairs_hook=_checked_object,
            parse_constant=_InvalidNumber,
            parse_float=_finite_float,
            parse_int=_short_int,
        )
        _reject_numbers(tree, "the value")
        return tree
    except json.JSONDecodeError as e:
        keys = re.findall(
            r'"((?:[^"\\]|\\.)*)"\s*:', text[max(0, e.pos - _MAX_KEY_DISTANCE) : e.pos]
        )
        after = f", after the key {keys[-1]!r}" if keys else ""
        raise error(
            f"{source} is not valid JSON: {e.msg.removesuffix(' at')} at line {e.lineno}, column "
            f"{e.colno}{after}"
        ) from None
    except RecursionError:
        raise error(f"{source} is nested too deeply") from None
    except _StrictnessError as e:
        raise error(f"{source}: {e}") from None


def read_json(path: Path, error: type[BilmError], max_bytes: int = MAX_JSON_BYTES) -> Any:
    """Read and strictly parse the JSON file at `path`."""
    if path.is_dir():
        raise error(f"{path} is a directory; expected a JSON file")
    data = read_regular(path, error, max_bytes)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as e:
        raise error(f"{path} is not UTF-8: byte {e.start} is {e.object[e.start]:#04x}") from None
    return parse_json(text, str(path), error)
