from __future__ import annotations

from pathlib import Path

import pytest

from bilm.errors import CorpusError
from bilm.vocabulary import Vocabulary
from tests.conftest import GOLDEN


def test_reads_and_writes_the_published_format(tmp_path: Path) -> None:
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
        (b"<S>\n</S>\n<UNK>\nthe\nof\nthe\n", "'the' stands twice.*lines 4 and 6"),
        (b"<S>\n</S>\n<UNK>\n\nthe\n", "line 4"),
        (b"<S>\n</S>\n<UNK>\nof the\n", "line 4"),
        (b"<S>\n</S>\n<UNK>\nthe\t12\n", "line 4"),
        (b"<S>\n</S>\n<UNK>\n\xff\n", "line 4 has the byte 0xff"),
    ],
)
def test_bad_files(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    with pytest.raises(CorpusError, match=message):
        Vocabulary.read(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="No such file"):
        Vocabulary.read(tmp_path / "vocab.txt")


def test_windows_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"<S>\r\n</S>\r\n<UNK>\r\nthe\r\n")
    assert Vocabulary.read(path).words == ("<S>", "</S>", "<UNK>", "the")
