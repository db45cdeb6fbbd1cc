from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from bilm.errors import ConfigError
from bilm.files.reading import open_regular, read_regular, sha256_of


def test_opens_only_regular_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "device"):
        with pytest.raises(ConfigError, match=f"cannot read {path}: it is not a regular file"):
            open_regular(path, ConfigError)
    with pytest.raises(ConfigError, match="none: No such file"):
        open_regular(tmp_path / "none", ConfigError)
    with pytest.raises(ConfigError, match="a path cannot contain a NUL"):
        open_regular(Path("a\0b"), ConfigError)


def test_reads_content_and_digest(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert read_regular(path, ConfigError, 5) == b"12345"
    with pytest.raises(ConfigError, match="has 5 bytes; the limit is 4"):
        read_regular(path, ConfigError, 4)
    assert sha256_of(path, ConfigError) == hashlib.sha256(b"12345").hexdigest()
