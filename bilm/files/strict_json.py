"""A JSON reader that refuses what `json.load` lets through.

Doubled keys, NaN and infinities, numbers that overflow to infinity, files that are too large or
nested too deeply: each is an error of the caller's type that names file, line and column.
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

_LOOK_BACK = 4096  # characters before an error, in which the last key is looked for


class _Refused(ValueError):
    """A rule of ours, not of JSON, is broken."""


class _NoNumber(str):
    """Stands where the text has a number that we refuse, until the key that holds it is known."""


def _checked_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise _Refused(f"the key {key!r} stands twice in one object; keep one of them")
        _refuse_numbers(value, f"the value of {key!r}")
        result[key] = value
    return result


def _refuse_numbers(value: Any, name: str) -> None:
    if isinstance(value, _NoNumber):
        raise _Refused(f"{name} is {value}, which is not a finite number")
    if isinstance(value, list):
        for item in value:
            _refuse_numbers(item, name)


def _finite_float(text: str) -> float | _NoNumber:
    return float(text) if math.isfinite(float(text)) else _NoNumber(text)


def _short_int(text: str) -> int | _NoNumber:
    return int(text) if len(text) <= 30 else _NoNumber(f"{text[:10]}... of {len(text)} digits")


def parse_json(text: str, source: str, error: type[BilmError]) -> Any:
    """Parse `text` strictly; `source` names it in messages, `error` is the type to raise."""
    try:
        tree = json.loads(
            text,
            object_pairs_hook=_checked_object,
            parse_constant=_NoNumber,
            parse_float=_finite_float,
            parse_int=_short_int,
        )
        _refuse_numbers(tree, "the value")
        return tree
    except json.JSONDecodeError as e:
        keys = re.findall(r'"((?:[^"\\]|\\.)*)"\s*:', text[max(0, e.pos - _LOOK_BACK) : e.pos])
        after = f", after the key {keys[-1]!r}" if keys else ""
        raise error(
            f"{source} is not valid JSON: {e.msg} at line {e.lineno}, column {e.colno}{after}"
        ) from None
    except RecursionError:
        raise error(f"{source} is nested too deeply") from None
    except _Refused as e:
        raise error(f"{source}: {e}") from None


def read_json(path: Path, error: type[BilmError], max_bytes: int = MAX_JSON_BYTES) -> Any:
    """Read and strictly parse the JSON file at `path`."""
    if path.is_dir():
        raise error(f"{path} is a directory; a JSON file is expected")
    data = read_regular(path, error, max_bytes)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as e:
        raise error(f"{path} is not UTF-8: byte {e.start} is {e.object[e.start]:#04x}") from None
    return parse_json(text, str(path), error)
