from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bilm.embedding.embedder import Embedder, Limits
from bilm.errors import ConfigError, CorpusError, OutputError
from bilm.files.writing import exclusive_lock
from downstream.build_index import main
from downstream.explorer.index import OccurrenceIndex
from downstream.explorer.index_format import (
    PRODUCTS_FILE,
    WORDS_FILE,
    bytes_per_word,
    layer_file,
)
from downstream.explorer.index_text import open_index
from downstream.explorer.index_writer import LOCK_FILE
from tests.bilm.embedding.elmo_models import tiny
from tests.bilm.small_corpus import write_corpus
from tests.downstream.explorer.small_models import make_index, write_text

SMALL_WINDOWS = Limits(window_words=20)


class _Interruption(Exception):
    """Raised by the test in the middle of a run."""


def contents(directory: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in directory.iterdir() if p.name != LOCK_FILE}


def small_index(directory: Path, text: Path, max_words: int = 10_000) -> OccurrenceIndex:
    embedder = Embedder(tiny(), SMALL_WINDOWS, device="cpu")
    return open_index(text, embedder, max_words, directory)


def test_resumes_with_the_same_result(tmp_path: Path) -> None:
    text = write_text(tmp_path)
    whole = small_index(tmp_path / "whole", text)
    embedded: list[int] = []

    def interrupt(num_words: int) -> None:
        embedded.append(num_words)
        if len(embedded) == 4:
            raise _Interruption

    embedder = Embedder(tiny(), SMALL_WINDOWS, device="cpu")
    with pytest.raises(_Interruption):
        open_index(text, embedder, 10_000, tmp_path / "resumed", interrupt)
    (partial,) = (tmp_path / "resumed").iterdir()
    with open(partial / "layer-0.bin", "ab") as file:
        file.write(b"written after the last finished window")
    resumed = small_index(tmp_path / "resumed", text)
    assert contents(resumed.directory) == contents(whole.directory)
    assert not partial.exists()


def test_existing_index_is_not_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_index(tmp_path, tiny())
    monkeypatch.setattr(Embedder, "embed", None)
    assert make_index(tmp_path, tiny()).directory == first.directory


def test_limits_the_number_of_words(tmp_path: Path) -> None:
    index = small_index(tmp_path, write_text(tmp_path), max_words=13)
    assert len(index) == 12  # two sentences; the third would exceed the limit


def test_indexes_a_corpus(tmp_path: Path) -> None:
    sentences = [["the", "bank", "floods"], ["a", "river"]]
    write_corpus(tmp_path / "corpus", {"train": sentences, "heldout": [["a", "bank"]]})
    index = small_index(tmp_path, tmp_path / "corpus")
    found = {index.occurrence(row).words for row in range(len(index))}
    assert found == {*map(tuple, sentences), ("a", "bank")}


def test_rejects_a_second_writer(tmp_path: Path) -> None:
    text = write_text(tmp_path)
    directory = small_index(tmp_path / "a", text).directory
    partial = tmp_path / "b" / (directory.name + ".partial")
    partial.mkdir(parents=True)
    lock = exclusive_lock(partial / LOCK_FILE, OutputError, "")
    with lock, pytest.raises(OutputError, match="another process is writing"):
        small_index(tmp_path / "b", text)


def test_command_prints_the_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny().save_pretrained(tmp_path / "model")
    flags = ["--model", str(tmp_path / "model"), "--cache", str(tmp_path / "indexes")]
    main([*flags, "--text", str(write_text(tmp_path)), "--device", "cpu"])
    assert "words of 44 sentences, 3 layers of 12" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "error", "message"),
    [
        (["--text", "missing.txt"], CorpusError, "does not exist"),
        (["--text", "empty.txt"], CorpusError, "is empty"),
        (["--text", "."], CorpusError, "without corpus.json"),
        (["--text", "text.txt", "--max-words", "0"], ConfigError, "--max-words is 0"),
    ],
)
def test_rejects_invalid_flags(
    flags: list[str],
    error: type[Exception],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path)
    (tmp_path / "empty.txt").touch()
    with pytest.raises(error, match=message):
        main(flags)


def test_rejects_a_text_without_words(tmp_path: Path) -> None:
    (tmp_path / "blank.txt").write_text("\n \n", encoding="utf-8")
    with pytest.raises(CorpusError, match="has no words to index"):
        small_index(tmp_path, tmp_path / "blank.txt")


@pytest.mark.parametrize("is_corpus", [False, True])
def test_rejects_a_small_disk_before_the_bilm_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_corpus: bool
) -> None:
    text = write_text(tmp_path)
    if is_corpus:
        text = tmp_path / "corpus"
        write_corpus(text, {"train": [["the", "bank"]] * 40})
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    monkeypatch.setattr(Embedder, "embed", None)
    with pytest.raises(OutputError, match=r"needs about .* but 1,000 bytes are free"):
        small_index(tmp_path / "indexes", text)
    assert not (tmp_path / "indexes").exists()


def test_estimated_size_is_that_of_the_files(tmp_path: Path) -> None:
    index = make_index(tmp_path, tiny())
    record = index.record
    names = [WORDS_FILE, PRODUCTS_FILE, *(layer_file(i) for i in range(record.num_layers))]
    size = sum((index.directory / name).stat().st_size for name in names)
    assert size == record.num_words * bytes_per_word(record.num_layers, record.dim)
