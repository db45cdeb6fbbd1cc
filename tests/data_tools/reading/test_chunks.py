from __future__ import annotations

import csv
import gzip
import json
import lzma
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import zstandard

from data_tools.reading.chunks import find_inputs, read_chunks, texts_of
from tests.data_tools.corpus_building import IN_ORDER, build, make_lines, reject, write_lines
from tests.data_tools.corpus_reading import REPOSITORY, digests, sentences

# Compresses poorly, so that a truncated file ends inside the compressed data.
NOISE = "".join(f"{i * 7919 % 10007} " + "\n" * (i % 11 == 0) for i in range(20_000)).encode()


def read(path: Path) -> list[tuple[int, str]]:
    """Return the texts of a file with their line numbers."""
    result: list[tuple[int, str]] = []
    for chunk in read_chunks(find_inputs([str(path)], None, "--input")):
        texts = texts_of(chunk, "strict")
        result += zip(chunk.line_numbers, texts, strict=True)
    assert chunk.bytes_read == path.stat().st_size
    return result


@pytest.mark.parametrize("chunk_bytes", [1, 20, 1000])
def test_reads_texts_and_line_numbers_of_all_formats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    monkeypatch.setattr("data_tools.reading.chunks.CHUNK_BYTES", chunk_bytes)
    contents = {
        "a.txt": b"one\n\nthree",
        "a.jsonl": b'{"text": "one"}\n\n{"text": "three"}\n',
        "a.csv": b'id,text\n1,"two\nlines"\n2,four\n',
        "a.tsv": b'text\tid\n"two\t1\n',
        "b.csv": b'id;text\n1;"two\nlines"\n2;four\n',
        "a.json": b'["one", {"text": "two"}]',
    }
    expected = {
        "a.txt": [(1, "one"), (2, ""), (3, "three")],
        "a.jsonl": [(1, "one"), (2, ""), (3, "three")],
        "a.csv": [(2, "two\nlines"), (4, "four")],
        "a.tsv": [(2, '"two')],
        "b.csv": [(2, "two\nlines"), (4, "four")],
        "a.json": [(1, "one"), (2, "two")],
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        assert read(tmp_path / name) == expected[name], name


def test_bytes_read_adds_up_over_files(tmp_path: Path) -> None:
    for name in ("a.txt", "b.csv"):
        (tmp_path / name).write_text("text\nx\n")
    chunks = list(read_chunks(find_inputs([f"{tmp_path}/*"], None, "--input")))
    assert [chunk.bytes_read for chunk in chunks] == [7, 14]


def compress(data: bytes, suffix: str) -> bytes:
    return {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}[suffix](data)


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_reads_compressed_inputs(tmp_path: Path, suffix: str) -> None:
    lines = make_lines(3000)
    path = tmp_path / f"text.txt{suffix}"
    path.write_bytes(compress("\n".join(lines).encode(), suffix))
    corpus = build(path, tmp_path / "corpus", *IN_ORDER)
    assert sentences(corpus) == [line.split() for line in lines]


def test_only_line_feeds_end_lines(tmp_path: Path) -> None:
    text = "\ufeffa b\r\n\nc\u2028d\x85e\x0bf\x1cg\rh\n \t\u3000\ni"
    (tmp_path / "a.txt").write_bytes(text.encode())
    corpus = build(tmp_path / "a.txt", tmp_path / "c", *IN_ORDER)
    assert sentences(corpus) == [["a", "b"], ["c", "d", "e", "f", "g", "h"], ["i"]]


def test_chunk_size_does_not_affect_the_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = write_lines(tmp_path / "text.txt")
    whole = digests(build(text, tmp_path / "whole"))
    for size in (1, 100, 7777):
        monkeypatch.setattr("data_tools.reading.chunks.CHUNK_BYTES", size)
        assert digests(build(text, tmp_path / f"cut{size}")) == whole


def test_reads_jsonl_field(tmp_path: Path) -> None:
    records = [{"body": "a b\nc"}, {"body": "d “e”", "id": 3}, {"body": ""}]
    lines = [json.dumps(record) for record in records]
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as file:
        file.write("\n\n".join(lines))
    flags = ["--field", "body", *IN_ORDER]
    corpus = build(tmp_path / "a.jsonl.gz", tmp_path / "c", *flags)
    assert sentences(corpus) == [["a", "b", "c"], ["d", "“e”"]]
    corpus = build(tmp_path / "a.jsonl.gz", tmp_path / "d", *flags, "--lines", "documents")
    assert sentences(corpus) == [["a", "b"], ["c"], ["d", "“e”"]]


def test_reads_csv_and_tsv_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data_tools.reading.chunks.CHUNK_BYTES", 64)
    rows = [["label", "text"]] + [[str(i), f'say "{i}", then\nstop'] for i in range(100)]
    with open(tmp_path / "a.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    expected = [["say", f'"{i}",', "then", "stop"] for i in range(100)]
    assert sentences(build(tmp_path / "a.csv", tmp_path / "c", *IN_ORDER)) == expected
    with_header = build(tmp_path / "a.csv", tmp_path / "d", *IN_ORDER, "--field", 2)
    assert sentences(with_header) == [["text"], *expected]
    (tmp_path / "b.tsv.xz").write_bytes(lzma.compress(b'1\t"open quote\n2\tb c\n'))
    tsv = build(tmp_path / "b.tsv.xz", tmp_path / "e", *IN_ORDER, "--field", 2)
    assert sentences(tsv) == [['"open', "quote"], ["b", "c"]]


def test_format_overrides_the_extension(tmp_path: Path) -> None:
    (tmp_path / "news.en-00001-of-00100").write_text("a b\n")
    corpus = build(tmp_path / "news.en-*", tmp_path / "c", "--format", "text", *IN_ORDER)
    assert sentences(corpus) == [["a", "b"]]


def test_replaces_invalid_characters(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a\xffb c\nd\0e\n")
    (tmp_path / "b.jsonl").write_text('{"text": "x\\ud800y z\\u0000"}\n')
    corpus = build(tmp_path / "[ab].*", tmp_path / "c", "--errors", "replace", *IN_ORDER)
    assert sentences(corpus) == [["a\ufffdb", "c"], ["d\ufffde"], ["x\ufffdy", "z\ufffd"]]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.txt", b"ok\nb \xff\n", r"line 2 is not UTF-8: byte 3 .*or use --errors replace"),
        ("a.txt", b"ok\nno\0pe\n", r"line 2 contains a NUL byte.*or use --errors replace"),
        ("a.txt", b"", r"a\.txt is empty"),
        ("a.txt.gz", gzip.compress(b"", mtime=0), r"a\.txt\.gz is empty"),
        ("a.txt.gz", gzip.compress(NOISE, mtime=0)[:-9], r"a\.txt\.gz is truncated"),
        ("a.txt.zst", b"not zstd\n", r"cannot read .*a\.txt\.zst"),
        ("a.pdf", b"x\n", r"unknown extension '\.pdf'.*--format"),
        ("a.jsonl", b'{"text": "x"}\n{"txt": "x"}\n', r"a\.jsonl, line 2 has no field 'text'"),
        ("a.jsonl", b'{"text": "x"}\n{"text"\n', r"a\.jsonl, line 2 is not a JSON object"),
        ("a.jsonl", b"[1]\n", r"a\.jsonl, line 1 is .*; expected a JSON object"),
        ("a.jsonl", b'{"text": 3}\n', r"a\.jsonl, line 1: the field 'text' is 3"),
        ("a.jsonl", b'{"text": "\\ud800"}\n', r"line 1: .*unpaired surrogate.*--errors replace"),
        ("a.csv", b"id,body\n1,x\n", r"no column 'text' in its header \['id', 'body'\]"),
        ("a.csv", b"id,text\n1,x\n2\n", r"a\.csv, line 3 has 1 columns, but"),
        ("a.csv", b"id,text\n1,\xff\n", r"a\.csv, line 2 is not UTF-8.*pass its --encoding"),
        ("a.json", b'["x", 3]', r"a\.json, item 2 is 3; expected a JSON object"),
        ("a.json", b'{"text": "x"}\n', r"a\.json does not contain a JSON array.*--format jsonl"),
        ("a.parquet", b"x\n", r"a\.parquet is not an intact Parquet file"),
    ],
)
def test_rejects_damaged_input(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    reject(tmp_path, name, message=message)


def test_columns_are_numbered_from_1(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,x\n")
    reject(tmp_path, "a.csv", "--field", 0, message="numbered from 1")


def test_rejects_missing_files_and_directories(tmp_path: Path) -> None:
    (tmp_path / "folder.txt").mkdir()
    reject(tmp_path, "nothing.txt", message=r"nothing\.txt: no such file")
    reject(tmp_path, "*.gz", message=r"matches no file")
    reject(tmp_path, "folder.txt", message=r"is a directory")
    reject(tmp_path, "*.txt", message=r"is a directory")


def test_error_names_the_empty_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a b c\n")
    (tmp_path / "b.txt").write_text("")
    reject(tmp_path, "*.txt", message=r"b\.txt is empty")


def test_rejects_long_line_without_reading_it(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.txt.gz", "wb", compresslevel=1) as file:
        file.write(b"fine\n")
        for _ in range(100):
            file.write(b"x " * (1 << 19))
    flags = ["--heldout", "0", "--tokenizer", "whitespace", "--workers", "1"]
    started = psutil.Popen(
        [sys.executable, "-m", "data_tools.build_corpus", "--input", tmp_path / "a.txt.gz",
         "--output", tmp_path / "c", *flags],
        cwd=REPOSITORY, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    peak = 0
    while started.poll() is None:
        try:
            peak = max(peak, started.memory_info().rss)
        except psutil.Error:
            break
        time.sleep(0.005)
    assert started.wait(timeout=60) == 2
    assert "line 2 has more than 16,777,216 bytes" in started.stderr.read()
    assert peak < 160 << 20


def test_reads_files_of_different_shape(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "a.csv").write_text("id;text\n1;a b\n")
    (tmp_path / "b.jsonl").write_text('\n{"body": "c"}\n{"body": "d"}\n')
    (tmp_path / "c.json").write_text('[{"body": "e", "text": "f"}]')
    parquet.write_table(pyarrow.table({"body": ["g h"]}), tmp_path / "d.parquet")
    (tmp_path / "e.txt").write_bytes("i\n".encode("utf-16"))
    corpus = build(
        tmp_path / "?.*", tmp_path / "out", "--field", "text", "--field", "body", *IN_ORDER
    )
    assert sentences(corpus) == [["a", "b"], ["c"], ["d"], ["f"], ["g", "h"], ["i"]]
    reject(
        tmp_path, "?.*", "--field", "x", "--field", "y", message="none of the fields x, y is pre"
    )
    reject(
        tmp_path, "?.*", "--field", "text", "--field", "2", message="several fields must be names"
    )


def test_reads_other_encodings(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("text\ncafé au lait\n".encode("latin-1"))
    corpus = build(tmp_path / "a.csv", tmp_path / "c", "--encoding", "latin-1", *IN_ORDER)
    assert sentences(corpus) == [["café", "au", "lait"]]
    reject(
        tmp_path, "a.csv", "--encoding", "latin-99", message="'latin-99' is not a known encoding"
    )


def test_requires_pyarrow_before_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bilm.text.parquet.importlib.util.find_spec", lambda name: None)
    (tmp_path / "a.txt").write_bytes(b"\xff\n")
    (tmp_path / "b.parquet").write_text("x")
    reject(tmp_path, "*", message=r"b\.parquet requires pyarrow; install it with pip install 'bilm")
