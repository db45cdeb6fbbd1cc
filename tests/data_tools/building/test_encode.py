from __future__ import annotations

from pathlib import Path

import pytest

from tests.data_tools.corpus_building import reject


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"ok\nok <S> x\n", r"a\.txt, line 2 contains the word <S>.*remove it"),
        (b"ok\n\nx </S>\n", r"a\.txt, line 3 contains the word </S>"),
        (b"\n  \n\t\n", r"the input contains no words"),
    ],
)
def test_rejects_reserved_words_and_no_words(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    reject(tmp_path, "a.txt", message=message)


def test_names_the_line_in_a_later_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data_tools.reading.chunks.CHUNK_BYTES", 1000)
    (tmp_path / "a.txt").write_bytes(b"some words\n" * 5000 + b"<S>\n" + b"more\n" * 500)
    for workers in (1, 2):
        reject(tmp_path, "a.txt", "--workers", workers, message=r"line 5001 contains the word")
