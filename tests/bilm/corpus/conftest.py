from __future__ import annotations

from pathlib import Path

import pytest

from bilm.corpus import verified_files
from bilm.corpus.reader import Corpus
from tests.bilm.corpus.corpus_editing import SENTENCES
from tests.bilm.small_corpus import write_corpus


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    """Three blocks in two shards of `train`, one word outside the vocabulary, and `heldout`."""
    return write_corpus(
        tmp_path / "corpus",
        {"train": SENTENCES, "heldout": [["a", "cat"]]},
        vocabulary=["<S>", "</S>", "<UNK>", "the", "cat", "sat", "a", "x", "été", "w" * 60],
        shard_words=8,
        block_words=6,
    )


@pytest.fixture
def record_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Record files that were written just now, and use a cache directory of the test."""
    monkeypatch.setattr(verified_files, "_TIME_STEP_NS", 0)
    monkeypatch.setenv("BILM_CACHE", str(tmp_path / "cache"))
