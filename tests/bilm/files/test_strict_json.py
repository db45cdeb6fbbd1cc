from __future__ import annotations

import os
from pathlib import Path

import pytest

from bilm.errors import ConfigError
from bilm.files.strict_json import MAX_JSON_BYTES, parse_json, read_json


def test_a_pipe_and_too_large_a_file_are_refused_unread(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="pipe: it is not a regular file"):
        read_json(tmp_path / "pipe", ConfigError)
    with open(tmp_path / "large", "wb") as file:
        file.truncate(MAX_JSON_BYTES + 1)
    with pytest.raises(ConfigError, match="at most 1,048,576 are read"):
        read_json(tmp_path / "large", ConfigError)


def test_the_key_before_an_error_is_looked_for_nearby() -> None:
    with pytest.raises(ConfigError, match=r"after the key 'near'$"):
        parse_json('{"far": 1, ' + " " * 5000 + '"near": x}', "it", ConfigError)
    with pytest.raises(ConfigError, match=r"column 5012$"):
        parse_json('{"far": ' + " " * 5003 + "x}", "it", ConfigError)
