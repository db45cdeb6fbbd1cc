from __future__ import annotations

from typing import Any

import pytest

from bilm.errors import ConfigError
from bilm.files.sections import Section, parse_section


class Name(Section):
    name: str


def test_a_tree_that_is_too_deep_is_an_error_of_ours() -> None:
    tree: dict[str, Any] = {}
    for _ in range(5000):
        tree = {"name": tree}
    with pytest.raises(ConfigError, match="x is nested too deeply"):
        parse_section(Name, tree, "x")


def test_half_a_surrogate_pair_is_an_error_of_ours() -> None:
    with pytest.raises(ConfigError, match="it cannot be read: Invalid JSON"):
        parse_section(Name, {"name": "\ud800"}, "x")
