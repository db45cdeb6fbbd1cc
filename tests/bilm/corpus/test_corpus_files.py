from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from bilm.corpus import corpus_files
from bilm.corpus.reader import Corpus
from bilm.errors import CorpusError
from bilm.files.mapping import Stamp


def is_rejected(path: Path) -> bool:
    try:
        Corpus.open(path).verify()
    except CorpusError:
        return True
    return False


@pytest.mark.parametrize("kind", ["shards", "others"])
@pytest.mark.parametrize("damage", ["flip", "truncate"])
def test_detects_flipped_bits_and_truncation(corpus: Corpus, kind: str, damage: str) -> None:
    """Try 2,000 bit flips and 2,000 truncations of shards, and 500 of each of the other files."""
    assert not is_rejected(corpus.path)
    names = sorted(
        p.name for p in corpus.path.iterdir() if (p.suffix == ".tar") == (kind == "shards")
    )
    contents = {name: (corpus.path / name).read_bytes() for name in names}
    rng = random.Random(f"{kind} {damage}")
    undetected = []
    for _ in range(2000 if kind == "shards" else 500):
        name = rng.choice(names)
        data = contents[name]
        place = rng.randrange(len(data))
        if damage == "flip":
            bit = 1 << rng.randrange(8)
            broken = data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :]
        else:
            broken = data[:place]
        (corpus.path / name).write_bytes(broken)
        if not is_rejected(corpus.path):
            undetected.append((name, place))
        (corpus.path / name).write_bytes(data)
    assert undetected == []
    assert not is_rejected(corpus.path)


def test_error_names_the_damaged_file_and_a_remedy(corpus: Corpus) -> None:
    path = corpus.path / "heldout-00000.tar"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    opened = Corpus.open(corpus.path)
    opened.verify("train")
    with pytest.raises(CorpusError, match=r"heldout-00000\.tar is damaged: its sha256.*restore"):
        opened.verify()
    with pytest.raises(CorpusError, match="is damaged"):
        opened.block("heldout", 0)
    with pytest.raises(CorpusError, match="no split 'test'"):
        opened.verify("test")


def test_verify_reports_progress(corpus: Corpus) -> None:
    done: list[int] = []
    corpus.verify(progress=done.append)
    sizes = [p.stat().st_size for p in corpus.path.iterdir() if p.name != "corpus.json"]
    assert sorted(done) == sorted(sizes)


def overwrite(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    with path.open("r+b") as file:
        file.write(data)


def replace(path: Path) -> None:
    other = path.with_suffix(".other")
    other.write_bytes(path.read_bytes()[::-1])
    other.replace(path)


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


@pytest.mark.parametrize("change", [overwrite, replace, cut, Path.unlink])
def test_block_rejects_a_changed_shard(corpus: Corpus, change: Callable[[Path], None]) -> None:
    corpus.verify()
    corpus.block("train", 0, verify=False)
    change(corpus.path / "train-00000.tar")
    with pytest.raises(CorpusError, match=r"changed since it was opened.*train-00000\.tar"):
        corpus.block("train", 0, verify=False)


@pytest.mark.parametrize("change", [overwrite, replace, cut, Path.unlink])
@pytest.mark.parametrize("name", ["train-00000.tar", "lexicon.bin"])
def test_check_rejects_any_changed_file(
    corpus: Corpus, name: str, change: Callable[[Path], None]
) -> None:
    corpus.verify()
    change(corpus.path / name)
    with pytest.raises(CorpusError, match=f"changed since it was opened.*{name}"):
        corpus.files.check_unchanged()


def test_block_checks_only_its_shard(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    original = corpus_files.stamp
    looked_at = []

    def stamp(path: Path) -> Stamp | None:
        looked_at.append(path.name)
        return original(path)

    corpus.block("train", 0)
    monkeypatch.setattr(corpus_files, "stamp", stamp)
    corpus.block("train", 0)
    assert looked_at == ["train-00000.tar"]


def test_accepts_equal_content(corpus: Corpus) -> None:
    before = corpus.block("train", 0)[0].copy()
    path = corpus.path / "train-00000.tar"
    path.with_suffix(".other").write_bytes(path.read_bytes())
    path.with_suffix(".other").replace(path)
    assert (corpus.block("train", 0)[0] == before).all()


def test_checks_at_most_once_per_second(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=lambda: 100.0, time_ns=time.time_ns)
    monkeypatch.setattr(corpus_files, "time", clock)
    corpus.files.check_unchanged()
    overwrite(corpus.path / "train-00000.tar")
    clock.monotonic = lambda: 100.9
    corpus.files.check_unchanged()  # the last check was less than a second ago
    clock.monotonic = lambda: 101.1
    with pytest.raises(CorpusError, match=r"changed since it was opened.*train-00000\.tar"):
        corpus.files.check_unchanged()
