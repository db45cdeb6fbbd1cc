"""Mutations of bytes and of parsed JSON, and the hypothesis strategies for them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

_EDITS = ("flip", "set", "insert", "delete", "cut", "repeat", "zero", "grow")
EDITS = st.lists(
    st.tuples(st.sampled_from(_EDITS), st.integers(0, 1 << 30), st.binary(min_size=1, max_size=8)),
    min_size=1,
    max_size=4,
)
CHARACTERS = st.characters(exclude_categories=())  # including surrogates and NUL
VALUES = st.one_of(
    st.sampled_from([None, True, False, 0, -1, 1, 3, 2**31, 2**63, 10**40, 1e308, "", "full"]),
    st.sampled_from([[], {}, [[]], [[1, 1]], [[2, 3], [4, 5]], {"a": 1}, "adam", "linear", "../x"]),
    st.sampled_from([float("nan"), float("inf"), "sentencepiece", "moses", [0.9, 0.999], 261, 262]),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(CHARACTERS, max_size=8),
)
_CHANGES = ("set", "delete", "rename", "wrap", "add")
CHANGES = st.lists(
    st.tuples(st.sampled_from(_CHANGES), st.integers(0, 1 << 30), VALUES), min_size=1, max_size=3
)


def variant_of(drawn: list[tuple[str, int, Any]], variant: int) -> list[tuple[str, int, Any]]:
    """Return similar mutations at other positions; drawing is slow, so each draw is reused."""
    result = []
    for kind, number, value in drawn:
        kinds = _EDITS if kind in _EDITS and isinstance(value, bytes) else _CHANGES
        kind = kinds[(kinds.index(kind) + variant) % len(kinds)]
        result.append((kind, number * (2 * variant + 1) + 7919 * variant, value))
    return result


def mutated(
    data: bytes, edits: list[tuple[str, int, bytes]], positions: list[int] | None = None
) -> bytes:
    """Return `data` after `edits`; with `positions`, every second edit is at one of them."""
    result = bytearray(data)
    for kind, number, blob in edits:
        size = max(1, len(result))
        at = number % size
        if positions and number % 2:
            at = positions[(number // 2) % len(positions)] % size
        if not result:
            result += blob
        elif kind == "flip":
            result[at] ^= 1 << (blob[0] % 8)
        elif kind == "set":
            result[at : at + len(blob)] = blob
        elif kind == "insert":
            result[at:at] = blob
        elif kind == "delete":
            del result[at : at + blob[0] + 1]
        elif kind == "cut":
            del result[at:]
        elif kind == "repeat":
            result[at:at] = result[at : at + 1 + blob[0]] * (1 + blob[-1] % 4)
        elif kind == "zero":
            result[at : at + len(blob)] = bytes(len(blob))
        else:
            result[at] = (result[at] + blob[0]) % 256
    return bytes(result)


def changed(tree: Any, changes: list[tuple[str, int, Any]]) -> Any:
    """Return a copy of parsed JSON after `changes`, each at some key of it."""
    root = [json.loads(json.dumps(tree))]
    for kind, number, value in changes:
        keys = list(_keys(root))
        owner, key = keys[number % len(keys)]
        value = copy.deepcopy(value)
        if kind == "delete" and owner is not root:
            del owner[key]
        elif kind == "rename" and isinstance(owner, dict):
            owner[str(value)] = owner.pop(key)
        elif kind == "wrap":
            owner[key] = [owner[key]]
        elif kind == "add" and isinstance(owner, dict):
            owner[f"{key}x"] = value
        else:
            owner[key] = value
    return root[0]


def _keys(node: Any) -> Iterator[tuple[Any, Any]]:
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in list(items):
        yield node, key
        if isinstance(value, (dict, list)):
            yield from _keys(value)
