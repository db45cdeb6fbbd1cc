"""Overrides of a configuration on the command line: `section.key=value`."""

from __future__ import annotations

import json
from typing import Any

from bilm.errors import ConfigError
from bilm.files.strict_json import parse_json


def apply_override(tree: dict[str, Any], override: str) -> None:
    """Set one value in the tree of a configuration, which may lack its section."""
    path, equals, text = override.partition("=")
    keys = path.split(".")
    if not equals or len(keys) < 2 or not all(keys):
        raise ConfigError(
            f"the override {override!r} is not of the form section.key=value, "
            "for example train.seed=1"
        )
    node: Any = tree
    for key in keys[:-1]:
        node = node.setdefault(key, {}) if isinstance(node, dict) else None
    if not isinstance(node, dict):
        raise ConfigError(f"the override {override!r} sets a key of a value that is not an object")
    node[keys[-1]] = _override_value(text, override)


def _override_value(text: str, override: str) -> Any:
    """Return a JSON value, or the text itself if it is not JSON (so that paths need no quotes)."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):  # thousands of digits raise a plain ValueError
        return text
    return parse_json(text, f"the override {override!r}", ConfigError)
