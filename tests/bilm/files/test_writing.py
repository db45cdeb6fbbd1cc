"""Files and directories are complete or absent after failures and kills at every step."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bilm.errors import CorpusError, OutputError
from bilm.files.writing import (
    atomic_directory,
    atomic_file,
    exclusive_lock,
    reject_existing,
    shared_lock,
    write_text,
)
from tests.conftest import ROOT


def fail_to_write_file(path: Path) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text("bad")
        raise ZeroDivisionError


def fail_to_write_directory(path: Path) -> None:
    with atomic_directory(path, CorpusError) as temporary:
        write_text(temporary / "a", "1")
        raise ZeroDivisionError


def test_file_appears_when_complete(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    with atomic_file(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    with pytest.raises(ZeroDivisionError):
        fail_to_write_file(path)
    assert path.read_text() == "new"
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_directory_appears_when_complete(tmp_path: Path) -> None:
    path = tmp_path / "directory"
    with pytest.raises(ZeroDivisionError):
        fail_to_write_directory(path)
    assert list(tmp_path.iterdir()) == []
    with atomic_directory(path, CorpusError) as temporary:
        write_text(temporary / "a", "1")
    with pytest.raises(CorpusError, match="already exists"), atomic_directory(path, CorpusError):
        pass
    with atomic_directory(path, CorpusError, overwrite=True) as temporary:
        write_text(temporary / "b", "2")
    assert [p.name for p in path.iterdir()] == ["b"]
    assert [p.name for p in tmp_path.iterdir()] == ["directory"]


def test_reports_free_space_of_full_disk(tmp_path: Path) -> None:
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
from bilm.files import writing
from bilm.errors import CorpusError
count, fatal = 0, int(sys.argv[2])
def killing(function):
    def call(*args, **kwargs):
        global count
        count += 1
        if count == fatal:
            os._exit(9)
        return function(*args, **kwargs)
    return call
for name in ("rename", "replace", "fsync", "chmod", "open"):
    setattr(os, name, killing(getattr(os, name)))
writing._exchange = killing(writing._exchange)
with writing.atomic_directory(Path(sys.argv[1]), CorpusError, overwrite=True) as temporary:
    (temporary / "content").write_text("new")
"""


def test_kill_at_any_call_leaves_old_or_new_content(tmp_path: Path) -> None:
    path = tmp_path / "directory"
    seen = set()
    for fatal in range(1, 40):
        write_text(path / "content", "old")
        done = subprocess.run([sys.executable, "-c", KILLED, str(path), str(fatal)], cwd=ROOT)
        seen.add((path / "content").read_text())
        if done.returncode == 0:
            break
        assert done.returncode == 9
    assert done.returncode == 0  # the last run was not killed, so all calls have been tried
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


def test_writing_does_not_change_the_umask_of_other_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "umask", None)  # reading it would change it temporarily

    def write() -> None:
        for number in range(20):
            write_text(tmp_path / f"{threading.get_ident()}-{number}", "x")

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(tmp_path.iterdir())) == 80


def test_rejects_existing_paths(tmp_path: Path) -> None:
    reject_existing(tmp_path / "none", OutputError)
    reject_existing(tmp_path, OutputError, overwrite=True)
    with pytest.raises(OutputError, match=r"already exists; .* or use --overwrite"):
        reject_existing(tmp_path, OutputError)


def hold_twice(path: Path) -> None:
    with (
        exclusive_lock(path, OutputError, "it is locked"),
        exclusive_lock(path, OutputError, "it is locked"),
    ):
        pass


def test_lock_is_exclusive_until_released(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    for _ in range(2):
        with pytest.raises(OutputError, match="it is locked"):
            hold_twice(path)
    with exclusive_lock(path, OutputError, "it is locked"):
        assert path.is_file()


def test_several_processes_share_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with shared_lock(path, OutputError, "it is locked"):
        with shared_lock(path, OutputError, "it is locked"):
            pass
        with (
            pytest.raises(OutputError, match="it is locked"),
            exclusive_lock(path, OutputError, "it is locked"),
        ):
            pass
    with (
        pytest.raises(OutputError, match="it is locked"),
        exclusive_lock(path, OutputError, "it is locked"),
        shared_lock(path, OutputError, "it is locked"),
    ):
        pass


def test_lock_does_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for path in (tmp_path / "link", tmp_path):
        with pytest.raises(OSError, match=r"."), exclusive_lock(path, OutputError, ""):
            pass
    assert not (tmp_path / "elsewhere").exists()
