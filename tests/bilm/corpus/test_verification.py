from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from bilm.corpus import corpus_files, verification
from bilm.corpus.reader import Corpus
from bilm.corpus.verification import verify_corpus
from bilm.corpus.verified_files import RECORD_FILE
from bilm.errors import CorpusError
from bilm.files import mapping


def test_hashes_in_several_threads(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=60)
    original = corpus_files.sha256
    shards = [corpus.files.map(name) for name in corpus.files if name.startswith("train")]
    assert len(shards) == 2

    def sha256(data: mapping.Bytes, progress: object) -> str:
        if any(data is shard for shard in shards):
            both.wait()  # raises an error if the other shard is not hashed at the same time
        return original(data)

    monkeypatch.setattr(corpus_files, "sha256", sha256)
    verify_corpus(corpus, num_threads=2)


def test_reports_damage_from_any_thread(corpus: Corpus) -> None:
    path = corpus.path / "train-00001.tar"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(CorpusError, match=r"train-00001\.tar is damaged"):
        verify_corpus(corpus, num_threads=4)


def test_writes_lines_without_a_terminal(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter(range(0, 10_000, 6))
    clock = SimpleNamespace(monotonic=lambda: next(seconds))
    monkeypatch.setattr(verification, "time", clock)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    lines: list[str] = []
    verify_corpus(corpus, full=True, write_line=lines.append)
    assert lines[0].startswith("verifying 0.0 MB")
    shares = [line for line in lines[1:] if "% of the corpus, " in line]
    assert shares == lines[1:]
    assert len(shares) == (len(list(corpus.files)) - 1) // 2  # every second file, 12 seconds apart


def test_shows_a_bar_on_a_terminal(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    terminal = SimpleNamespace(isatty=lambda: True, write=written.append, flush=lambda: None)
    monkeypatch.setattr(sys, "stderr", terminal)
    verify_corpus(corpus, full=True, write_line=written.append)
    assert "verify" in "".join(written)
    assert "verifying" not in "".join(written)


def test_is_silent_without_write_line(corpus: Corpus, capfd: pytest.CaptureFixture[str]) -> None:
    verify_corpus(corpus, full=True)
    assert capfd.readouterr() == ("", "")


def test_writes_nothing_without_record(corpus: Corpus, tmp_path: Path) -> None:
    verify_corpus(corpus, record=False)
    assert not (corpus.path / RECORD_FILE).exists()
