"""Pipes, devices, directories and links in a file's place; lines and files without end."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path

import pytest

from bilm.errors import ConfigError, CorpusError
from bilm.files.reading import open_regular, read_regular, sha256_of
from bilm.files.writing import open_lock
from bilm.text.lines import bounded_lines


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "device"):
        with pytest.raises(ConfigError, match=f"cannot read {path}: it is not a regular file"):
            open_regular(path, ConfigError)
    with pytest.raises(ConfigError, match="none: No such file"):
        open_regular(tmp_path / "none", ConfigError)
    with pytest.raises(ConfigError, match="it is no path"):
        open_regular(Path("a\0b"), ConfigError)


def test_content_and_digest(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert read_regular(path, ConfigError, 5) == b"12345"
    with pytest.raises(ConfigError, match="has 5 bytes; at most 4 are read"):
        read_regular(path, ConfigError, 4)
    assert sha256_of(path, ConfigError) == hashlib.sha256(b"12345").hexdigest()


def test_lines_have_an_end() -> None:
    assert list(bounded_lines(io.BytesIO(b"ab\nabc\nabcd"), Path("x"), 4)) == [
        *(b"ab\n", b"abc\n", b"abcd")
    ]
    with pytest.raises(CorpusError, match="x, line 2 has more than 4"):
        list(bounded_lines(io.StringIO("a\nabcde"), Path("x"), 4))


def test_a_lock_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for path in (tmp_path / "link", tmp_path):
        with pytest.raises(OSError, match=r"."):
            open_lock(path)
    assert not (tmp_path / "elsewhere").exists()
    open_lock(tmp_path / "lock").close()
    assert (tmp_path / "lock").is_file()
