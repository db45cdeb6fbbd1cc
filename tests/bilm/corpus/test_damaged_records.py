"""Records of verified files that are damaged, hostile, or not files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bilm.corpus.reader import Corpus
from bilm.corpus.verified_files import RECORD_FILE
from tests.bilm.corpus.corpus_editing import hashed_bytes, total_bytes

pytestmark = pytest.mark.usefixtures("record_at_once")

RECORDS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a list": lambda record: [record],
    "null": lambda record: None,
    "another version": lambda record: record | {"version": 2},
    "no fingerprint": lambda record: {k: v for k, v in record.items() if k != "fingerprint"},
    "another fingerprint": lambda record: record | {"fingerprint": "0" * 64},
    "files as a list": lambda record: record | {"files": list(record["files"])},
    "entries as strings": lambda record: record | {"files": dict.fromkeys(record["files"], "x")},
    "true for every entry": lambda record: record | {"files": dict.fromkeys(record["files"], True)},
    "short entries": lambda record: (
        record | {"files": {name: entry[:3] for name, entry in record["files"].items()}}
    ),
    "a record that is too long": lambda record: record | {"padding": "x" * 100_000},
}


@pytest.mark.parametrize("kind", RECORDS)
def test_damaged_record_is_ignored_and_replaced(corpus: Corpus, kind: str) -> None:
    hashed_bytes(corpus.path)
    path = corpus.path / RECORD_FILE
    path.write_text(json.dumps(RECORDS[kind](json.loads(path.read_text()))))
    assert hashed_bytes(corpus.path) == total_bytes(corpus)
    assert hashed_bytes(corpus.path) == 0


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"files": NaN}'])
def test_record_that_is_not_json_is_ignored(corpus: Corpus, data: bytes) -> None:
    (corpus.path / RECORD_FILE).write_bytes(data)
    assert hashed_bytes(corpus.path) == total_bytes(corpus)
    assert hashed_bytes(corpus.path) == 0


@pytest.mark.parametrize("kind", ["directory", "pipe", "link"])
def test_record_that_is_not_a_file_is_ignored(corpus: Corpus, tmp_path: Path, kind: str) -> None:
    path, target = corpus.path / RECORD_FILE, tmp_path / "target"
    target.write_text("unchanged")
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(target)
    assert hashed_bytes(corpus.path) == total_bytes(corpus)
    assert hashed_bytes(corpus.path) == 0
    assert target.read_text() == "unchanged"
