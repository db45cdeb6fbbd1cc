from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from bilm.errors import CorpusError
from downstream.features.word_vectors import WordVectors, vectors_digest


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_looks_up_lower_case_then_mean(tmp_path: Path) -> None:
    path = write(tmp_path / "v.txt", "cat 1 2\nThe 3 4\nthe 5 6\n")
    vectors = WordVectors.read(path)
    found = vectors.look_up(["Cat", "The", "THE", "dog"])
    np.testing.assert_array_equal(found, [[1, 2], [3, 4], [5, 6], [3, 4]])
    np.testing.assert_array_equal(vectors.look_up(["dog"], "zero"), [[0, 0]])
    assert vectors.known_share(["Cat", "dog"]) == 0.5


def test_keeps_requested_words_and_the_mean_of_all(tmp_path: Path) -> None:
    path = tmp_path / "v.txt.gz"
    path.write_bytes(gzip.compress(b"3 2\ncat 1 2\nThe 3 4\nthe 5 6\n"))
    vectors = WordVectors.read(path, ["Cat"])
    assert set(vectors.rows) == {"cat"}
    np.testing.assert_array_equal(vectors.mean, [3, 4])


def test_reads_words_with_spaces_after_the_first_line(tmp_path: Path) -> None:
    path = write(tmp_path / "v.txt", "cat 1 2\n. . . 3 4\nat name@example.com 5 6 \n")
    vectors = WordVectors.read(path)
    found = vectors.look_up([". . .", "at name@example.com"])
    np.testing.assert_array_equal(found, [[3, 4], [5, 6]])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no vectors"),
        ("cat 1 2\ndog 1\n", "line 2 has 1 numbers; the lines before it have 2"),
        ("cat 1 2\ndog 1 2 3\n", "line 2 has 3 numbers; the lines before it have 2"),
        ("cat 1 2\ndog 1 x\n", "line 2 is not a word and its numbers"),
        ("cat 1 2\ndog 1 1e39\n", r"line 2 has the number 1e\+39; expected numbers between"),
        ("cat 1 2\ndog 1 -1e19\n", r"line 2 has the number -1e\+19; expected numbers between"),
        ("cat 1 nan\n", "line 1 is not a word and its numbers"),
        ("cat\n", "line 1 is not a word and its numbers"),
    ],
)
def test_rejects_invalid_files(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        WordVectors.read(write(tmp_path / "v.txt", content))


def test_reports_words_that_occur_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "v.txt", "cat 1 2\ndog 3 4\ncat 5 6\ndog 7 8\n")
    vectors = WordVectors.read(path)
    np.testing.assert_array_equal(vectors.look_up(["cat", "dog"]), [[1, 2], [3, 4]])
    assert caplog.messages == [
        f"{path}, line 3: the word 'cat' occurs again; its first vector is used (2 such lines in "
        "total)"
    ]


def test_numbers_are_rounded_to_float32_once(tmp_path: Path) -> None:
    numbers = [repr(x) for x in np.random.default_rng(0).normal(size=1000).tolist()]
    vectors = WordVectors.read(write(tmp_path / "v.txt", f"cat {' '.join(numbers)}\n"))
    np.testing.assert_array_equal(vectors.table[0], np.array(numbers, dtype=np.float32))


def test_rejects_missing_and_truncated_files(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"cannot read .*none\.txt: No such file"):
        WordVectors.read(tmp_path / "none.txt")
    with pytest.raises(CorpusError, match="cannot read the word vectors"):
        vectors_digest(tmp_path / "none.txt")
    path = tmp_path / "v.txt.gz"
    path.write_bytes(gzip.compress(b"cat 1 2\n" * 1000)[:-12])
    with pytest.raises(CorpusError, match="truncated"):
        WordVectors.read(path)


def test_rejects_long_lines_and_devices(tmp_path: Path) -> None:
    path = write(tmp_path / "v.txt", "a 1 2\nb " + "1 " * (1 << 20))
    with pytest.raises(CorpusError, match="line 2 has more than 1,048,576"):
        WordVectors.read(path)
    for read in (WordVectors.read, vectors_digest):
        with pytest.raises(CorpusError, match="/dev/zero: it is not a regular file"):
            read("/dev/zero")
