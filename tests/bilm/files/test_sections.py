from __future__ import annotations

from typing import Any

import pytest

from bilm.errors import ConfigError
from bilm.files.sections import Name, PositiveInt, Section, Share, parse_section


class Example(Section):
    name: Name = "x"
    count: PositiveInt = 1
    share: Share = 0.5


def test_rejects_deeply_nested_trees() -> None:
    tree: dict[str, Any] = {}
    for _ in range(5000):
        tree = {"name": tree}
    with pytest.raises(ConfigError, match="x is nested too deeply"):
        parse_section(Example, tree, "x")


def test_rejects_unpaired_surrogates() -> None:
    with pytest.raises(ConfigError, match="invalid text: Invalid JSON"):
        parse_section(Example, {"name": "\ud800"}, "x")


def test_reports_all_errors_of_the_common_field_types() -> None:
    tree = {"name": "", "count": 0, "share": 1.0, "nmae": 1}
    with pytest.raises(ConfigError) as caught:
        parse_section(Example, tree, "x")
    message = str(caught.value)
    assert message.startswith("x: 4 errors")
    for part in ("name: string should have at least 1 character", "count: input should be greater",
                 "share: input should be less than 1", "the closest key is 'name'"):  # fmt: skip
        assert part in message
