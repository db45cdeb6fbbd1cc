"""Whole or absent: files and directories through failures and kills at every step."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bilm.errors import CorpusError
from bilm.files.writing import atomic_directory, atomic_file, write_text
from tests.conftest import ROOT


def spoil_file(path: Path) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text("bad")
        raise ZeroDivisionError


def spoil_directory(path: Path) -> None:
    with atomic_directory(path, CorpusError) as temporary:
        write_text(temporary / "a", "1")
        raise ZeroDivisionError


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    with atomic_file(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    with pytest.raises(ZeroDivisionError):
        spoil_file(path)
    assert path.read_text() == "new"
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_a_directory_appears_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "directory"
    with pytest.raises(ZeroDivisionError):
        spoil_directory(path)
    assert list(tmp_path.iterdir()) == []
    with atomic_directory(path, CorpusError) as temporary:
        write_text(temporary / "a", "1")
    with pytest.raises(CorpusError, match="exists already"), atomic_directory(path, CorpusError):
        pass
    with atomic_directory(path, CorpusError, overwrite=True) as temporary:
        write_text(temporary / "b", "2")
    assert [p.name for p in path.iterdir()] == ["b"]
    assert [p.name for p in tmp_path.iterdir()] == ["directory"]


def test_a_full_disk_is_told_with_the_free_space(tmp_path: Path) -> None:
    path = tmp_path / "directory"
    write_text(path / "old", "kept")
    with (
        pytest.raises(CorpusError, match=r"no space left.*bytes free"),
        atomic_directory(path, CorpusError, overwrite=True),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert (path / "old").read_text() == "kept"
    assert [p.name for p in tmp_path.iterdir()] == ["directory"]


KILLED = """
import os, sys
from pathlib import Path
from bilm.files import writing as atomic
from bilm.errors import CorpusError
count, fatal = 0, int(sys.argv[2])
def deadly(function):
    def call(*args, **kwargs):
        global count
        count += 1
        if count == fatal:
            os._exit(9)
        return function(*args, **kwargs)
    return call
for name in ("rename", "replace", "fsync", "chmod", "open"):
    setattr(os, name, deadly(getattr(os, name)))
atomic._exchange = deadly(atomic._exchange)
with atomic.atomic_directory(Path(sys.argv[1]), CorpusError, overwrite=True) as temporary:
    (temporary / "content").write_text("new")
"""


def test_a_kill_at_any_call_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    path = tmp_path / "directory"
    seen = set()
    for fatal in range(1, 40):
        write_text(path / "content", "old")
        done = subprocess.run([sys.executable, "-c", KILLED, str(path), str(fatal)], cwd=ROOT)
        seen.add((path / "content").read_text())
        if done.returncode == 0:
            break
        assert done.returncode == 9
    assert done.returncode == 0  # the last one was not disturbed: all calls have been tried
    assert fatal > 5
    assert seen == {"old", "new"}


def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        with atomic_directory(tmp_path / "d", CorpusError) as temporary:
            write_text(temporary / "f", "x")
    finally:
        os.umask(mask)
    assert (tmp_path / "d").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "d" / "f").stat().st_mode & 0o777 == 0o640
