from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from bilm.errors import ConfigError, CorpusError
from bilm.text.lines import LineReader
from downstream.texts.pairs import (
    PairColumns,
    distinct_texts,
    pairs_of_lines,
    read_labelled_pairs,
    read_pairs,
)
from downstream.texts.unlabelled import StandardInput

COLUMNS = PairColumns("sentence1", "sentence2", "label")
TEXTS = PairColumns("sentence1", "sentence2")
ROWS = [("a b", "c", "x"), ("d", "a b", "y"), ("a b", "c", "y")]


def write(path: Path, text: str) -> Path:
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def table(separator: str, header: str = "sentence2 label sentence1") -> str:
    lines = [separator.join(header.split())]
    lines += [separator.join((second, label, first)) for first, second, label in ROWS]
    return "\n".join(lines) + "\n"


def objects() -> list[dict[str, str]]:
    return [{"sentence2": s, "sentence1": f, "label": y, "id": "1"} for f, s, y in ROWS]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv.gz", "a.jsonl", "a.json.gz", "a.parquet"])
def test_reads_every_format(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if ".csv" in name or ".tsv" in name:
        write(path, table("," if ".csv" in name else "\t"))
    elif ".jsonl" in name:
        write(path, "".join(json.dumps(row) + "\n" for row in objects()))
    elif ".json" in name:
        write(path, json.dumps(objects()))
    else:
        arrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(arrow.Table.from_pylist(objects()), path)
    data = read_labelled_pairs(path, COLUMNS)
    assert data.pairs.texts == ("a b", "c", "d")
    assert (data.pairs.first.tolist(), data.pairs.second.tolist()) == ([0, 2, 0], [1, 0, 1])
    assert data.labels == ("x", "y", "y")
    assert [data.both(i) for i in range(len(data))] == [row[:2] for row in ROWS]
    assert read_pairs(LineReader(path), TEXTS) == [row[:2] for row in ROWS]
    expected = {"a.csv": "line 3", "a.tsv.gz": "line 3", "a.jsonl": "line 2"}
    unit = {"a.json.gz": "item 2", "a.parquet": "row 2"}
    assert data.place(1) == f"{path}, {(expected | unit)[name]}"


def test_reads_other_columns_by_name_and_number(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "q\tanswer\tgold\nhow\tso\t1\n")
    data = read_labelled_pairs(path, PairColumns("q", "answer", "gold"))
    assert (data.both(0), data.labels) == (("how", "so"), ("1",))
    path = write(tmp_path / "b.tsv", "1\thow\tso\n")
    assert read_labelled_pairs(path, PairColumns("2", "3", "1")).both(0) == ("how", "so")


def test_integer_labels_and_lists_of_words_are_accepted(tmp_path: Path) -> None:
    row = {"sentence1": ["a", "b"], "sentence2": " c ", "label": 0}
    data = read_labelled_pairs(write(tmp_path / "a.jsonl", json.dumps(row)), COLUMNS)
    assert (data.both(0), data.labels) == (("a b", "c"), ("0",))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tsv", "sentence1\tlabel\na\tx\n", r"a\.tsv has no column 'sentence2' in its header"),
        ("a.tsv", "sentence1\tsentence2\tlabel\na\tb\tx\na\tb\n", r"a\.tsv, line 3 has 2 columns"),
        ("a.csv", "sentence1,sentence2,label\na,,x\n", r"a\.csv, line 2: the text is empty \(colu"),
        ("a.csv", "sentence1,sentence2,label\n ,b,x\n", r"line 2: the text is empty \(column sent"),
        ("a.csv", "sentence1,sentence2,label\na,b, \n", r"a\.csv, line 2: the label is empty"),
        ("a.csv", "sentence1,sentence2,label\n", r"a\.csv has no rows; expected pairs"),
        ("a.jsonl", "", r"a\.jsonl has no rows"),
        ("a.jsonl", '{"sentence1": "a", "label": "x"}', r"line 1 has no field 'sentence2'"),
        ("a.jsonl", '{"sentence1": 1, "sentence2": "b", "label": "x"}', "'sentence1' is 1; expect"),
        ("a.jsonl", '{"sentence1": "a", "sentence2": "b", "label": null}', "the label is None"),
        ("a.jsonl", "{", r"a\.jsonl, line 1 is not a JSON object"),
        ("a.jsonl", '{"sentence1": "a\\u0000", "sentence2": "b", "label": "x"}', "contains a NUL"),
        ("a.txt", "a b\n", r"a\.txt is read as plain text, which has no columns"),
        ("a.xyz", "a b\n", "unknown extension"),
    ],
)
def test_rejects_invalid_files(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        read_labelled_pairs(write(tmp_path / name, text), COLUMNS)


def test_rejects_missing_file_and_equal_columns(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"cannot read .*no\.xyz"):
        read_pairs(LineReader(tmp_path / "no.xyz"), TEXTS)
    with pytest.raises(ConfigError, match="'a', 'a'; they must be different"):
        PairColumns("a", "a")
    with pytest.raises(ConfigError, match="must be different"):
        PairColumns("a", "", "label")


def test_lines_are_two_texts() -> None:
    assert pairs_of_lines(StandardInput(b"a b\tc\r\nd\te\n\n")) == [("a b", "c"), ("d", "e")]
    line = b'{"sentence1": "a", "sentence2": "b"}'
    assert read_pairs(StandardInput(line), TEXTS, "jsonl") == [("a", "b")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"", "standard input has no rows"),
        (b"a", "standard input, line 1 has 1 column;"),
        (b"a\tb\tc", "standard input, line 1 has 3 columns"),
        (b"a\t ", "standard input, line 1: the text is empty"),
    ],
)
def test_rejects_invalid_lines(line: bytes, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        pairs_of_lines(StandardInput(line))


def test_no_pairs_have_no_texts() -> None:
    assert len(distinct_texts([]).first) == 0
