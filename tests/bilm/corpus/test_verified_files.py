from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from bilm.corpus import verified_files
from bilm.corpus.reader import Corpus
from bilm.corpus.verification import verify_corpus
from bilm.corpus.verified_files import RECORD_FILE, VerificationRecord, can_be_recorded
from bilm.errors import CorpusError
from bilm.files.mapping import Stamp, stamp
from tests.bilm.corpus.corpus_editing import forge, hashed_bytes, total_bytes

SHARD = "train-00000.tar"
pytestmark = pytest.mark.usefixtures("record_at_once")


def flip(path: Path) -> None:
    """Change one bit in place; write until the times of the file differ from those before."""
    before = stamp(path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    while stamp(path) == before:
        with path.open("r+b") as file:
            file.write(data)


def test_hashes_only_once(corpus: Corpus) -> None:
    assert hashed_bytes(corpus.path) == total_bytes(corpus)
    assert hashed_bytes(corpus.path) == 0
    assert verify_corpus(Corpus.open(corpus.path), full=True) == total_bytes(corpus)


def test_hashes_changed_files_again(corpus: Corpus) -> None:
    hashed_bytes(corpus.path)
    path = corpus.path / SHARD
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    assert hashed_bytes(corpus.path) == path.stat().st_size
    assert hashed_bytes(corpus.path) == 0
    path.with_suffix(".other").write_bytes(path.read_bytes())
    path.with_suffix(".other").replace(path)
    assert hashed_bytes(corpus.path) == path.stat().st_size


@pytest.mark.parametrize("name", [SHARD, "heldout-00000.tar", "vocab.txt", "lexicon.bin"])
def test_detects_damage_after_a_verification(corpus: Corpus, name: str) -> None:
    hashed_bytes(corpus.path)
    flip(corpus.path / name)
    for _ in range(2):
        with pytest.raises(CorpusError, match=f"{name} is damaged"):
            hashed_bytes(corpus.path)


def test_detects_a_change_that_keeps_size_and_modification_time(corpus: Corpus) -> None:
    hashed_bytes(corpus.path)
    path = corpus.path / SHARD
    before = path.stat().st_mtime_ns
    flip(path)
    os.utime(path, ns=(0, before))
    assert path.stat().st_mtime_ns == before
    with pytest.raises(CorpusError, match=f"{SHARD} is damaged"):
        hashed_bytes(corpus.path)


def test_reading_a_block_uses_the_record(corpus: Corpus) -> None:
    hashed_bytes(corpus.path)
    assert Corpus.open(corpus.path).files.is_verified(SHARD)
    flip(corpus.path / SHARD)
    opened = Corpus.open(corpus.path)
    assert not opened.files.is_verified(SHARD)
    with pytest.raises(CorpusError, match=f"{SHARD} is damaged"):
        opened.block("train", 0)


def hide_damage(corpus: Corpus) -> None:
    """Damage a shard and record its new stamp, as if the system did not know of the change."""
    hashed_bytes(corpus.path)
    flip(corpus.path / SHARD)
    record = json.loads((corpus.path / RECORD_FILE).read_text())
    now = stamp(corpus.path / SHARD)
    assert now is not None
    record["files"][SHARD] = verified_files.entry_of(now)
    (corpus.path / RECORD_FILE).write_text(json.dumps(record))


def test_full_verification_detects_any_damage_and_corrects_the_record(corpus: Corpus) -> None:
    hide_damage(corpus)
    assert hashed_bytes(corpus.path) == 0  # documented in docs/corpus.md
    with pytest.raises(CorpusError, match=f"{SHARD} is damaged"):
        verify_corpus(Corpus.open(corpus.path), full=True)
    with pytest.raises(CorpusError, match=f"{SHARD} is damaged"):
        hashed_bytes(corpus.path)


def test_record_of_another_corpus_is_ignored(corpus: Corpus) -> None:
    hide_damage(corpus)
    other = "train-00001.tar"
    forge(corpus, other, (corpus.path / other).read_bytes()[:-1] + b"x")
    with pytest.raises(CorpusError, match=f"{SHARD} is damaged"):
        hashed_bytes(corpus.path)


def test_copied_record_is_not_used_for_the_copy(corpus: Corpus, tmp_path: Path) -> None:
    hashed_bytes(corpus.path)
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in corpus.path.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
        os.utime(copy / path.name, ns=(0, path.stat().st_mtime_ns))
    assert hashed_bytes(copy) == total_bytes(corpus)


def test_uses_the_cache_directory_if_the_corpus_cannot_be_written(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = verified_files.write_text

    def write_elsewhere(path: Path, text: str) -> None:
        if path.parent == corpus.path:  # root may write to any directory
            raise PermissionError("read-only")
        original(path, text)

    with monkeypatch.context() as patch:
        patch.setattr(verified_files, "write_text", write_elsewhere)
        assert hashed_bytes(corpus.path) == total_bytes(corpus)
    assert not (corpus.path / RECORD_FILE).exists()
    (cached,) = (tmp_path / "cache").iterdir()
    assert hashed_bytes(corpus.path) == 0
    flip(corpus.path / "vocab.txt")
    flip(corpus.path / "vocab.txt")  # restored, with other times
    hashed_bytes(corpus.path)
    assert (corpus.path / RECORD_FILE).exists()
    assert not cached.exists()
    assert hashed_bytes(corpus.path) == 0


def test_unwritable_record_is_no_error(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    (corpus.path / RECORD_FILE).mkdir()
    monkeypatch.setenv("BILM_CACHE", str(corpus.path / "vocab.txt"))  # not a directory
    for _ in range(2):
        assert hashed_bytes(corpus.path) == total_bytes(corpus)


def test_threads_can_write_the_record_at_the_same_time(corpus: Corpus) -> None:
    stamps = {name: stamp(corpus.path / name) for name in corpus.files}
    known = {name: value for name, value in stamps.items() if value is not None}
    record = VerificationRecord(corpus.path, corpus.fingerprint, len(stamps))
    names = list(known)
    threads = [
        threading.Thread(target=record.update, args=({n: known[n] for n in names[: i % 3 + 1]},))
        for i in range(30)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert len(record.read()) in range(4)
    for thread in threads:
        thread.join()
    assert 1 <= len(record.read()) <= 3
    assert {p.name for p in corpus.path.iterdir()} == {*names, "corpus.json", RECORD_FILE}


def test_recent_or_changing_files_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verified_files, "_TIME_STEP_NS", 2_000_000_000)
    before = Stamp(1, 2, 3, modified_ns=10**18, changed_ns=10**18 + 10**9)
    assert can_be_recorded(before, before, before.changed_ns + 2 * 10**9)
    assert not can_be_recorded(before, before, before.changed_ns + 2 * 10**9 - 1)
    assert not can_be_recorded(before, before, before.changed_ns - 10**12)  # written in the future
    assert not can_be_recorded(before, before._replace(changed_ns=10**18 + 1), 10**19)
    assert not can_be_recorded(None, None, 10**19)
    unknown = before._replace(changed_ns=0)  # a file system without change times
    assert not can_be_recorded(unknown, unknown, 10**19)


def test_files_that_cannot_be_synced_are_not_recorded(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, inode = os.fsync, (corpus.path / SHARD).stat().st_ino

    def fsync(descriptor: int) -> None:
        if os.fstat(descriptor).st_ino == inode:
            raise OSError("input/output error")
        original(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    hashed_bytes(corpus.path)
    assert hashed_bytes(corpus.path) == corpus.files.num_bytes(SHARD)


def test_another_run_does_not_restore_the_entry_of_a_damaged_file(corpus: Corpus) -> None:
    hide_damage(corpus)
    other = Corpus.open(corpus.path)
    assert other.files.is_verified(SHARD)  # by the record
    with pytest.raises(CorpusError, match=f"{SHARD} is damaged"):
        verify_corpus(Corpus.open(corpus.path), full=True)
    other.files.verify("vocab.txt", again=True)
    other.files.write_record()
    with pytest.raises(CorpusError, match=f"{SHARD} is damaged"):
        hashed_bytes(corpus.path)


def test_runs_keep_the_entries_of_one_another(corpus: Corpus) -> None:
    runs = [Corpus.open(corpus.path) for _ in range(2)]
    for run, name in zip(runs, (SHARD, "vocab.txt"), strict=True):
        run.files.verify(name)
        run.files.write_record()
    opened = Corpus.open(corpus.path)
    assert opened.files.is_verified(SHARD)
    assert opened.files.is_verified("vocab.txt")


def test_newer_record_applies(corpus: Corpus, tmp_path: Path) -> None:
    """A record in the cache directory does not hide damage that another user has found."""
    hide_damage(corpus)
    (tmp_path / "cache").mkdir()
    record = VerificationRecord(corpus.path, corpus.fingerprint, 1)
    (cached,) = (path for path in record._paths() if path.parent != corpus.path)
    cached.write_bytes((corpus.path / RECORD_FILE).read_bytes())
    (corpus.path / RECORD_FILE).unlink()
    assert Corpus.open(corpus.path).files.is_verified(SHARD)
    tree = json.loads(cached.read_text())
    del tree["files"][SHARD]
    while not stamp(corpus.path / RECORD_FILE) or _time(corpus.path / RECORD_FILE) <= _time(cached):
        (corpus.path / RECORD_FILE).write_text(json.dumps(tree))
    with pytest.raises(CorpusError, match=f"{SHARD} is damaged"):
        hashed_bytes(corpus.path)


def _time(path: Path) -> int:
    return path.stat().st_mtime_ns


def test_warns_if_the_entry_of_a_damaged_file_cannot_be_removed(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hide_damage(corpus)

    def write_text(path: Path, text: str) -> None:
        raise OSError("read-only file system")

    monkeypatch.setattr(verified_files, "write_text", write_text)
    with pytest.raises(CorpusError, match=f"{SHARD} is damaged"):
        verify_corpus(Corpus.open(corpus.path), full=True)
    (line,) = caplog.messages
    assert f"{SHARD} may be damaged" in line
    assert f"delete {corpus.path / RECORD_FILE} and " in line
