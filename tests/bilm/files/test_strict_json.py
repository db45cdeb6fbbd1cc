from __future__ import annotations

import os
from pathlib import Path

import pytest

from bilm.errors import ConfigError
from bilm.files.strict_json import MAX_JSON_BYTES, parse_json, read_json


def test_rejects_pipes_and_large_files_without_reading(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="pipe: it is not a regular file"):
        read_json(tmp_path / "pipe", ConfigError)
    with open(tmp_path / "large", "wb") as file:
        file.truncate(MAX_JSON_BYTES + 1)
    with pytest.raises(ConfigError, match="the limit is 1,048,576"):
        read_json(tmp_path / "large", ConfigError)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "a": 2}', "it: the key 'a' is duplicated"),
        ('{"a": NaN}', "the value of 'a' is NaN, which is not a finite number"),
        ('{"a": [1, 1e999]}', "the value of 'a' is 1e999"),
        ('{"a": "\n"}', "Invalid control character at line 1, column 8"),
        ("1" * 40, "is 1111111111... .40 digits"),
        ("[" * 100_000, "it is nested too deeply"),
    ],
)
def test_rejects_values_that_json_load_accepts(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_json(text, "it", ConfigError)


def test_syntax_error_names_nearby_key() -> None:
    with pytest.raises(ConfigError, match=r"after the key 'near'$"):
        parse_json('{"far": 1, ' + " " * 5000 + '"near": x}', "it", ConfigError)
    with pytest.raises(ConfigError, match=r"column 5012$"):
        parse_json('{"far": ' + " " * 5003 + "x}", "it", ConfigError)
