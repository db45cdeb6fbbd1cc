from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from bilm.errors import CorpusError
from bilm.text.characters import SPECIAL_WORDS
from bilm.text.vocabulary import MAX_VOCABULARY_BYTES, SpecialIds, Vocabulary
from tests.conftest import GOLDEN


@pytest.mark.parametrize("order", list(itertools.permutations(SPECIAL_WORDS)))
def test_special_words_keep_the_ids_of_the_file(order: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{word}\n" for word in [*order, "the"]))
    vocabulary = Vocabulary.read(path)
    assert vocabulary.words == (*order, "the")
    assert vocabulary.special_ids == SpecialIds(*map(order.index, ("<S>", "</S>", "<UNK>")))
    assert vocabulary["no such word"] == vocabulary["<UNK>"] == order.index("<UNK>")
    vocabulary.write(tmp_path / "copy.txt")
    assert (tmp_path / "copy.txt").read_bytes() == path.read_bytes()


def test_reads_and_writes_published_format(tmp_path: Path) -> None:
    vocabulary = Vocabulary.read(GOLDEN / "vocab.txt")
    assert len(vocabulary) == 82
    assert vocabulary["<S>"] == 0
    assert vocabulary["the"] == 4
    assert vocabulary["no such word"] == 2
    assert "the" in vocabulary
    assert "no such word" not in vocabulary
    vocabulary.write(tmp_path / "vocab.txt")
    again = Vocabulary.read(tmp_path / "vocab.txt")
    assert again.words == vocabulary.words
    assert again.digest == vocabulary.digest


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "first lines must be"),
        (b"the\nof\n", "first lines must be"),
        (b"<S>\n</S>\nthe\n", "first lines must be"),
        (b"<S>\n<S>\n<UNK>\nthe\n", "first lines must be"),
        (b"<S>\n</S>\n<UNK>\nthe\nof\nthe\n", "'the' occurs twice.*lines 4 and 6"),
        (b"<S>\n</S>\n<UNK>\n\nthe\n", "line 4"),
        (b"<S>\n</S>\n<UNK>\nof the\n", "line 4"),
        (b"<S>\n</S>\n<UNK>\nthe\t12\n", "line 4"),
        (b"<S>\n</S>\n<UNK>\n\xff\n", "line 4 has the byte 0xff"),
    ],
)
def test_rejects_invalid_files(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    with pytest.raises(CorpusError, match=message):
        Vocabulary.read(path)


def test_rejects_missing_file(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="No such file"):
        Vocabulary.read(tmp_path / "vocab.txt")


def test_accepts_windows_line_endings(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"<S>\r\n</S>\r\n<UNK>\r\nthe\r\n")
    assert Vocabulary.read(path).words == ("<S>", "</S>", "<UNK>", "the")


def test_rejects_large_files_and_directories(tmp_path: Path) -> None:
    with open(tmp_path / "large", "wb") as file:
        file.truncate(MAX_VOCABULARY_BYTES + 1)
    with pytest.raises(CorpusError, match="the limit is 67,108,864"):
        Vocabulary.read(tmp_path / "large")
    with pytest.raises(CorpusError, match="not a regular file"):
        Vocabulary.read(tmp_path)


def test_error_does_not_quote_other_files(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("a secret\n")
    with pytest.raises(CorpusError, match="first lines must be") as caught:
        Vocabulary.read(tmp_path / "vocab.txt")
    assert "secret" not in str(caught.value)
