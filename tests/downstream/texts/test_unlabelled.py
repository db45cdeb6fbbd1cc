from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bilm.errors import CorpusError
from bilm.text.lines import LineReader
from bilm.text.tables import Format
from downstream.texts.labelled import TextColumns
from downstream.texts.unlabelled import StandardInput, UnlabelledText, read_unlabelled


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_keeps_white_space_and_lists_of_words(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"text": " a  b\t"}, {"text": ["didn't", "go"]})
    one, two = read_unlabelled(LineReader(path), TextColumns())
    assert one == UnlabelledText(" a  b\t", f"{path}, line 1")
    assert one.content == " a  b\t"
    assert two == UnlabelledText("didn't go", f"{path}, line 2", ("didn't", "go"))
    assert two.content == ("didn't", "go")
    (tmp_path / "a.txt").write_text("  a \nb\n\n", "utf-8")
    texts = read_unlabelled(LineReader(tmp_path / "a.txt"), TextColumns())
    assert [one.text for one in texts] == ["  a ", "b"]


def test_joins_columns_without_empty_cells(tmp_path: Path) -> None:
    columns = TextColumns(text_columns=("a", "b"))
    path = write(tmp_path / "a.jsonl", {"a": " x", "b": ""}, {"a": ["x"], "b": ["y", "z"]})
    one, two = read_unlabelled(LineReader(path), columns)
    assert one.text == " x"
    assert (two.text, two.words) == ("x y z", ("x", "y", "z"))
    path = write(tmp_path / "b.jsonl", {"a": "x", "b": ["y"]})
    with pytest.raises(CorpusError, match="line 1 has a string in one column and a list of words"):
        read_unlabelled(LineReader(path), columns)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the text is empty"),
        (" ", "the text is empty"),
        ([], "the text is empty"),
        (["a", " "], "the text contains ' '"),
        ([["a"]], "expected a string or a list of strings"),
        ("a\0", "contains a NUL"),
    ],
)
def test_rejects_bad_texts_with_file_and_line(tmp_path: Path, text: Any, message: str) -> None:
    path = write(tmp_path / "bad.jsonl", {"text": "a"}, {"text": text})
    with pytest.raises(CorpusError, match=rf"bad\.jsonl, line 2: .*{message}"):
        read_unlabelled(LineReader(path), TextColumns())


def test_reads_lines_of_standard_input() -> None:
    data = "\ufeff a\u2028b \r\nc\n \n\n".encode()
    one, two = read_unlabelled(StandardInput(data), TextColumns(file_format="text"))
    assert one.text == " a\u2028b "
    assert two == UnlabelledText("c", "standard input, line 2")


@pytest.mark.parametrize(
    ("file_format", "content"),
    [
        ("jsonl", '{"text": ["a", "b"]}\n{"text": "c"}\n'),
        ("json", '[{"text": ["a", "b"]}, {"text": "c"}]'),
        ("csv", 'id,text\n1,"a b"\n2,c\n'),
        ("tsv", "text\tid\na b\t1\nc\t2\n"),
    ],
)
def test_reads_other_formats_from_standard_input(file_format: Format, content: str) -> None:
    columns = TextColumns(file_format=file_format)
    texts = read_unlabelled(StandardInput(content.encode()), columns)
    assert [text.text for text in texts] == ["a b", "c"]
    assert (texts[0].words is not None) == file_format.startswith("json")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "standard input has no rows"),
        (b"\xef\xbb\xbf\n", "standard input has no rows"),
        (b"a\n\nb", "standard input, line 2 is empty"),
        (b"a\n\xff", "standard input, line 2 is not UTF-8"),
        (b"a\nPe\0ter\n", "standard input, line 2 contains a NUL"),
    ],
)
def test_rejects_bad_lines_of_standard_input(data: bytes, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        read_unlabelled(StandardInput(data), TextColumns(file_format="text"))
