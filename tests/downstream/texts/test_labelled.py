from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from bilm.errors import BilmError, CorpusError
from bilm.text.lines import LineReader
from downstream.texts.labelled import TextColumns, digest_of, read_labelled, read_texts


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode("utf-8"))
    return path


def test_reads_csv_columns_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'label,id,text\nx,1,"one, two"\ny,2,"three\nfour"\n')
    data = read_labelled(path)
    assert data.texts == ("one, two", "three\nfour")
    assert data.labels == ("x", "y")
    assert len(data) == 2


def test_joins_numbered_columns_and_skips_empty_cells(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", '"3","","only this"\n"1"," A title ","and more"\n')
    data = read_labelled(path, label_column="1", text_columns=("2", "3"))
    assert data.texts == ("only this", "A title and more")
    assert data.labels == ("3", "1")


def test_reads_numbered_columns_of_a_file_with_header(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "label,text\nx,one\n")
    assert len(read_labelled(path, label_column="1", text_columns=("2",))) == 2
    data = read_labelled(path, label_column="1", text_columns=("2",), header=True)
    assert data.texts == ("one",)


def test_tsv_does_not_interpret_quotes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", 'text\tlabel\nhe said "no\tx\n')
    assert read_labelled(path).texts == ('he said "no',)


def test_reads_jsonl_with_words_and_integers(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"text": ["a", "b"], "label": 2}, {"text": "c", "label": "x"}]
    path = write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    data = read_labelled(path)
    assert data.texts == ("a b", "c")
    assert data.labels == ("2", "x")


def test_reads_plain_lines_and_other_extensions(tmp_path: Path) -> None:
    path = write(tmp_path / "stsa.fine.train", "4 a good film\n0 a bad film\n")
    with pytest.raises(CorpusError, match=r"unknown extension '.train'"):
        read_labelled(path)
    data = read_labelled(path, file_format="text")
    assert data.labels == ("4", "0")
    assert data.texts == ("a good film", "a bad film")
    assert read_texts(LineReader(path), TextColumns(file_format="text"))[0] == "4 a good film"
    tabs = read_labelled(write(tmp_path / "tabs.txt", "pos\ta good film\nneg  bad\n"))
    assert (tabs.labels, tabs.texts) == (("pos", "neg"), ("a good film", "bad"))


def test_reads_gzip_and_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress("\ufefflabel,text\nx,é\n".encode()))
    assert read_labelled(path).texts == ("é",)
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(CorpusError, match="truncated"):
        read_labelled(path)
    path.write_bytes(b"label,text\n")
    with pytest.raises(CorpusError, match=r"cannot read .*a\.csv\.gz"):
        read_labelled(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,lable\na,b\n", r"no column 'label' in its header \['text', 'lable'\]"),
        ("text,label,text\na,b,c\n", "the header contains 'text' more than once"),
        ("text,label\na,b\n ,c\n", "line 3: the text is empty"),
        ("text,label\na,\n", "line 2: the label is empty"),
        ("text,label\na,b,c\n", "line 2 has 3 columns, but the first row has 2"),
        ('text,label\n"a"b,c\n', "line 2 is not valid CSV"),
        ('text,label\n"a,c\n', "line 2 is not valid CSV: unexpected end of data"),
        ("text,label\na\0,b\n", "line 2 contains a NUL byte"),
        ("", "has no rows"),
        ("text,label\n", "has no rows"),
    ],
)
def test_rejects_invalid_csv(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        read_labelled(write(tmp_path / "a.csv", content))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1]", "expected a JSON object"),
        ("{", "line 1 is not a JSON object"),
        ('{"text": "a"}', r"no field 'label'; its fields are \['text'\]"),
        ('{"text": 1, "label": "x"}', "field 'text' is 1"),
        ('{"text": "a", "label": 1.5}', "label is 1.5"),
        ('{"text": "a", "label": true}', "label is True"),
        ('{"text": "a\\u0000", "label": "x"}', "NUL"),
        ('{"text": "a", "text": "b", "label": "x"}', "a key is duplicated"),
    ],
)
def test_rejects_invalid_jsonl(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        read_labelled(write(tmp_path / "a.jsonl", line + "\n"))


def test_rejects_files_that_are_not_text(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"text,label\n\xff\xfe,x\n")
    with pytest.raises(CorpusError, match="line 2 is not UTF-8: byte 1 of the line is 0xff"):
        read_labelled(path)
    with pytest.raises(CorpusError, match=r"cannot read .*b\.csv: No such file"):
        read_labelled(tmp_path / "b.csv")
    with pytest.raises(CorpusError, match="it is not a regular file"):
        read_labelled(tmp_path)


@pytest.mark.parametrize(
    ("label", "texts", "message"),
    [
        ("1", ("2", "2"), "contain duplicates"),
        ("1", ("4",), "has no column 4"),
        ("1", ("0",), "has no column 0"),
        ("1", (), "the name of a column is empty"),
        ("a", ("1",), "two of the columns 1, a are the same"),
    ],
)
def test_rejects_invalid_columns(
    tmp_path: Path, label: str, texts: tuple[str, ...], message: str
) -> None:
    path = write(tmp_path / "a.csv", "a,b,c\nd,e,f\n")
    with pytest.raises(BilmError, match=message):
        read_labelled(path, label_column=label, text_columns=texts)


def test_digest_depends_on_boundaries_between_texts() -> None:
    assert digest_of(["ab", "c"]) != digest_of(["a", "bc"])


def test_rejects_long_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"label,text\n") + gzip.compress(b"x" * (1 << 20)) * 20)
    with pytest.raises(CorpusError, match="line 2 has more than 16,777,216"):
        read_labelled(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "x one\ny two\n\n"),
        ("a.txt", "x one\ny two\n\n \n\t"),
        ("a.csv", "label,text\nx,one\ny,two\n\n"),
        ("a.csv", "label,text\nx,one\ny,two\n  \n"),
        ("a.csv", "label;text\nx;one\ny;two\n\n"),
        ("a.tsv", "label\ttext\nx\tone\ny\ttwo\n\n"),
        ("a.jsonl", '{"label": "x", "text": "one"}\n{"label": "y", "text": "two"}\n\n \n'),
        ("a.json", '[{"label": "x", "text": "one"}, {"label": "y", "text": ["two"]}]\n\n'),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_trailing_blank_lines_are_no_error(
    tmp_path: Path, name: str, content: str, encoding: str
) -> None:
    (tmp_path / name).write_bytes(content.encode(encoding))
    data = read_labelled(tmp_path / name)
    assert (data.labels, data.texts) == (("x", "y"), ("one", "two"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "x one\n\ny two\n"),
        ("a.jsonl", '{"label": "x", "text": "one"}\n\n{"label": "y", "text": "two"}\n'),
    ],
)
def test_rejects_blank_lines_between_rows(tmp_path: Path, name: str, content: str) -> None:
    with pytest.raises(CorpusError, match="line 2 is empty; remove it"):
        read_labelled(write(tmp_path / name, content))


def test_reads_parquet(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"label": [1, 0], "text": ["one", " "], "more": [["a", "b"], ["c"]]})
    path = tmp_path / "a.parquet"
    parquet.write_table(table, path)
    data = read_labelled(path, text_columns=("text", "more"))
    assert (data.labels, data.texts) == (("1", "0"), ("one a b", "c"))
    assert read_texts(LineReader(path), TextColumns(text_columns=("3",))) == ("a b", "c")
    with pytest.raises(CorpusError, match=r"a\.parquet, row 2: the text is empty"):
        read_labelled(path)


def test_reads_array_of_strings_as_texts(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", '["one", "two"]')
    assert read_texts(LineReader(path), TextColumns()) == ("one", "two")
    with pytest.raises(CorpusError, match="item 1 is 'one'; expected a JSON object"):
        read_labelled(path)


@pytest.mark.parametrize(
    ("name", "content", "places"),
    [
        ("a.csv", 'label,text\nx,"two\nlines"\ny,b\n', ["line 2", "line 4"]),
        ("b.csv", "x,a\ny,b\n", ["line 1", "line 2"]),
        ("a.jsonl", '{"label": 1, "text": "a"}\n{"label": 2, "text": "b"}\n', ["line 1", "line 2"]),
        ("a.json", '[{"label": 1, "text": "a"}, {"label": 2, "text": "b"}]', ["item 1", "item 2"]),
        ("a.txt", "x a\ny b\n", ["line 1", "line 2"]),
    ],
)
def test_keeps_the_place_of_each_text(
    tmp_path: Path, name: str, content: str, places: list[str]
) -> None:
    path = write(tmp_path / name, content)
    by_number = {"label_column": "1", "text_columns": ("2",)} if name == "b.csv" else {}
    data = read_labelled(path, **by_number)
    assert [data.place(i) for i in range(2)] == [f"{path}, {place}" for place in places]
