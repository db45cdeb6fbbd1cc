from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from bilm.errors import CheckpointError, CorpusError
from bilm.files.mapping import map_file, npy_array, npy_bytes, sha256, stamp


def test_maps_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    mapped = map_file(path, 5, CorpusError)
    assert mapped.tobytes() == b"12345"
    assert sha256(mapped) == hashlib.sha256(b"12345").hexdigest()
    (tmp_path / "empty").touch()
    assert len(map_file(tmp_path / "empty", 0, CorpusError)) == 0


def test_map_file_raises_given_error_for_other_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    os.mkfifo(tmp_path / "pipe")
    for name, num_bytes, message in (
        ("none", 5, "is missing"),
        ("link", 5, "is a symbolic link"),
        ("pipe", 5, "is not a regular file"),
        ("a", 6, "has 5 bytes, but 6 are expected"),
    ):
        with pytest.raises(CheckpointError, match=message):
            map_file(tmp_path / name, num_bytes, CheckpointError)


def test_stamp_changes_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert stamp(path) is None
    path.write_bytes(b"1")
    before = stamp(path)
    assert before == stamp(path)
    path.write_bytes(b"12")
    assert before != stamp(path)


def test_npy_round_trip_and_wrong_headers() -> None:
    array = np.arange(7, dtype="<i8")
    data = np.frombuffer(npy_bytes(array), dtype=np.uint8)
    np.testing.assert_array_equal(npy_array(data, "<i8", 7, Path("x")), array)
    for content, dtype, length, message in (
        (data, "<i4", 7, r"contains <i8 \(7,\); expected <i4 \(7,\)"),
        (data, "<i8", 8, "contains"),
        (data[:-1], "<i8", 7, "contradicts its header"),
        (data[:4], "<i8", 7, "not a one-dimensional .npy file"),
    ):
        with pytest.raises(CorpusError, match=message):
            npy_array(content, dtype, length, Path("x"))
