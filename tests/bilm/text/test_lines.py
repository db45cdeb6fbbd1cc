from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from bilm.errors import ConfigError, CorpusError
from bilm.text.lines import COMPRESSIONS, LineReader

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}
# Compresses poorly, so that a truncated file ends inside the compressed data.
LINES = [f"{i * 7919 % 10007} é日 {i * i}" for i in range(20_000)]
TEXT = "\n".join(LINES).encode()  # without a final line feed


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_reads_all_compressions() -> None:
    assert set(COMPRESS) == {"", *COMPRESSIONS}


@pytest.mark.parametrize("suffix", COMPRESS)
def test_reads_concatenated_streams(tmp_path: Path, suffix: str) -> None:
    compress, cut = COMPRESS[suffix], len(TEXT) // 3  # in the middle of a line
    path = write(tmp_path / f"a.txt{suffix}", compress(TEXT[:cut]) + compress(TEXT[cut:]))
    reader = LineReader(path)
    assert list(reader.lines()) == LINES
    assert reader.bytes_read == path.stat().st_size


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_rejects_truncated_archives(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"a.txt{suffix}", COMPRESS[suffix](TEXT)[:-9])
    with pytest.raises(CorpusError, match=r"is truncated: the compressed data ends in or after"):
        list(LineReader(path).lines())


@pytest.mark.parametrize("suffix", COMPRESSIONS)
def test_rejects_files_of_another_format(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"a.txt{suffix}", b"plain text\n" * 10)
    with pytest.raises(CorpusError, match=rf"cannot read .*a\.txt\{suffix} from line 1 on: "):
        list(LineReader(path).lines())


def test_damaged_archive_names_the_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt.gz", gzip.compress(TEXT)[:-6] + b"xxxxxx")
    with pytest.raises(CorpusError, match=r"cannot read .*a\.txt\.gz from line \d{5} on: CRC"):
        list(LineReader(path).lines())


def test_missing_zstandard_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert list(LineReader(write(tmp_path / "a.txt", b"a\n")).lines()) == ["a"]
    path = write(tmp_path / "a.txt.zst", b"")
    with pytest.raises(CorpusError, match=r"a\.txt\.zst requires zstandard; .*'bilm\[data\]'"):
        list(LineReader(path).lines())


def test_only_line_feeds_end_lines(tmp_path: Path) -> None:
    text = "\ufeffa b\r\n\nc\u2028d\x85e\x0bf\x1cg\rh\n\ufeffi\r\r\nj"
    path = write(tmp_path / "a.txt", text.encode())
    expected = ["a b", "", "c\u2028d\x85e\x0bf\x1cg\rh", "\ufeffi\r", "j"]
    assert list(LineReader(path).lines()) == expected
    for block_bytes in (1, 2, 7, 1000):
        blocks = list(LineReader(path).blocks(block_bytes))
        assert [line for block in blocks for line in block.lines()] == expected
        assert "".join(block.text for block in blocks) == text.removeprefix("\ufeff")
        for block, following in itertools.pairwise(blocks):
            assert following.first_line == block.first_line + len(block.lines())


def test_accepts_empty_files(tmp_path: Path) -> None:
    assert list(LineReader(write(tmp_path / "a.txt", b"")).lines()) == []
    assert list(LineReader(write(tmp_path / "a.txt", b"\n")).lines()) == [""]
    assert list(LineReader(write(tmp_path / "a.gz", gzip.compress(b""))).lines()) == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"ok\nb \xff\n", r"a\.txt, line 2 is not UTF-8: byte 3 of the line is 0xff; convert"),
        (b"\xff", r"a\.txt, line 1 is not UTF-8: byte 1 of the line is 0xff"),
        (b"ok\n" * 70_000 + b"\xc3\n", r"line 70001 is not UTF-8: byte 1 of the line is 0xc3"),
        (b"ok\nno\0pe\n", r"a\.txt, line 2 contains a NUL byte.*remove the byte, or ask\.$"),
    ],
)
def test_rejects_or_replaces_invalid_text(tmp_path: Path, data: bytes, message: str) -> None:
    path = write(tmp_path / "a.txt", data)
    with pytest.raises(CorpusError, match=message):
        list(LineReader(path, hint=", or ask.").lines())
    expected = data.decode("utf-8", "replace").replace("\0", "\ufffd")
    assert list(LineReader(path, "replace").lines()) == expected.removesuffix("\n").split("\n")


def test_limits_line_length(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"ab\nabc\nabcd")
    assert list(LineReader(path, max_line_bytes=4).lines()) == ["ab", "abc", "abcd"]
    for data, line in ((b"a\nabcde", 2), (b"abcde\n", 1), (b"a\nb\nabcdefghij\nc\n", 3)):
        path.write_bytes(data)
        with pytest.raises(CorpusError, match=rf"line {line} has more than 4 bytes; .*split the"):
            list(LineReader(path, max_line_bytes=4).lines())


def test_rejects_anything_but_regular_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    for path in (tmp_path, tmp_path / "pipe.txt", Path("/dev/zero")):
        with pytest.raises(CorpusError, match="it is not a regular file"):
            list(LineReader(path).lines())
    with pytest.raises(CorpusError, match=r"cannot read .*none\.txt: No such file"):
        list(LineReader(tmp_path / "none.txt").lines())


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("block_bytes", [1, 7, 1 << 16])
def test_recognizes_utf_16_by_its_byte_order_mark(
    tmp_path: Path, encoding: str, suffix: str, block_bytes: int
) -> None:
    lines = ["é日😀", "", "two words"] * (1 if block_bytes < 100 else 30_000)
    text = "\r\n".join(lines)
    mark = "" if encoding == "utf-16" else "\ufeff"  # "utf-16" writes the mark itself
    path = write(tmp_path / f"a.txt{suffix}", COMPRESS[suffix]((mark + text).encode(encoding)))
    blocks = list(LineReader(path).blocks(block_bytes))
    assert [line for block in blocks for line in block.lines()] == lines
    assert "".join(LineReader(path).pieces()) == text


def test_reads_other_encodings(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "caf\xe9\nna\xefve\n".encode("latin-1"))
    assert list(LineReader(path, encoding="latin-1").lines()) == ["café", "naïve"]
    path.write_bytes("日本\n".encode("shift_jis"))
    assert list(LineReader(path, encoding="shift_jis").lines()) == ["日本"]
    for name in ("utf-99", "base64", "zlib", "a\0b"):
        with pytest.raises(ConfigError, match="is not a known encoding"):
            LineReader(path, encoding=name)


def test_rejects_or_replaces_bytes_outside_the_encoding(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"ok\nna\xefve\n")
    with pytest.raises(CorpusError, match=r"a\.txt is not ascii, in or after line 1: ordinal not"):
        list(LineReader(path, encoding="ascii").lines())
    assert list(LineReader(path, "replace", encoding="ascii").lines()) == ["ok", "na\ufffdve"]
    path.write_bytes("\ufeffab".encode("utf-16-le")[:-1])
    with pytest.raises(CorpusError, match=r"is not utf-16.*truncated data"):
        list(LineReader(path).lines())


def test_pieces_are_valid_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", b"\xef\xbb\xbf" + TEXT)
    assert "".join(LineReader(path).pieces()) == TEXT.decode()
    path.write_bytes(b"ok\n\xff\n")
    with pytest.raises(CorpusError, match=r"a\.json, line 2 is not UTF-8: it has the byte 0xff"):
        list(LineReader(path).pieces())
    assert "".join(LineReader(path, "replace").pieces()) == "ok\n\ufffd\n"
