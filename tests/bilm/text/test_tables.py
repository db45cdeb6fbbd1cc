from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest

from bilm.errors import BilmError, CorpusError
from bilm.text.lines import LineReader
from bilm.text.tables import Format, Table, checked_text, format_of, json_fields


def rows(path: Path, table: Table, content: str) -> list[tuple[int, list[str]]]:
    path.write_bytes(content.encode())
    return [(row.number, row.cells) for row in table.rows(LineReader(path))]


def test_format_follows_from_the_extension() -> None:
    assert format_of(Path("a.csv")) == "csv"
    assert format_of(Path("a.b.jsonl.zst")) == "jsonl"
    assert format_of(Path("a.tok.gz")) == "text"
    assert format_of(Path("a.json.gz")) == "json"
    assert format_of(Path("a.parquet")) == "parquet"
    assert format_of(Path("sentences"), "text") == "text"
    with pytest.raises(CorpusError, match="Parquet files are compressed internally"):
        format_of(Path("a.parquet.gz"), "text")
    with pytest.raises(CorpusError, match=r"extension '\.pdf'; .* pass --format csv\|tsv\|jsonl"):
        format_of(Path("a.pdf.xz"))


def test_selects_columns_by_name_and_number(tmp_path: Path) -> None:
    content = 'a,b,"c d"\n1,"2, 3","4\n""5"""\r\n\n6,7,8'
    path = tmp_path / "a.csv"
    expected = [(2, ['4\n"5"', "1"]), (5, ["8", "6"])]
    assert rows(path, Table("csv", ("c d", "a")), content) == expected
    assert rows(path, Table("csv", ("3", "a")), content) == expected
    assert rows(path, Table("csv", ("3", "1"), header=True), content) == expected
    numbered = rows(path, Table("csv", ("3", "1")), content)
    assert numbered == [(1, ["c d", "a"]), *expected]


def test_names_take_precedence_over_numbers(tmp_path: Path) -> None:
    table = Table("csv", ("2",), header=True)
    assert rows(tmp_path / "a.csv", table, "2,x\na,b\n") == [(2, ["a"])]


def test_tsv_does_not_interpret_quotes(tmp_path: Path) -> None:
    content = 'text\tlabel\nhe said "no\tx\n'
    assert rows(tmp_path / "a.tsv", Table("tsv", ("text",)), content) == [(2, ['he said "no'])]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_accepts_all_line_endings(tmp_path: Path, end: str) -> None:
    content = end.join(["a,b", '1,"x', 'y"', "2,z", ""])
    found = rows(tmp_path / "a.csv", Table("csv", ("b",)), content)
    assert found == [(2, [f"x{end}y"]), (4, ["z"])]


def test_fields_may_span_blocks(tmp_path: Path) -> None:
    cells = [f"{i}\n" * i for i in range(600)]
    path = tmp_path / "a.csv.gz"
    with gzip.open(path, "wt", newline="") as file:
        csv.writer(file).writerows([cell] for cell in cells)
    assert [row.cells for row in Table("csv", ("1",)).rows(LineReader(path))] == [
        [cell] for cell in cells
    ]


@pytest.mark.parametrize(
    ("columns", "content", "message"),
    [
        (("c",), "a,b\n1,2\n", r"no column 'c' in its header \['a', 'b'\]; use one of these"),
        (("a",), "a,b,b\n1,2,3\n", "the header contains 'b' more than once"),
        (("a",), "a,b\n1,2\n3\n", "line 3 has 1 columns, but the first row has 2"),
        (("a",), "a,b\n1,2,3\n", "line 2 has 3 columns, but the first row has 2"),
        (("a",), 'a,b\n"1"x,2\n', "line 2 is not valid CSV"),
        (("a",), 'a,b\n"1,2\n', "line 2 is not valid CSV: unexpected end of data"),
        (("0",), "a,b\n", "has no column 0: its first row has 2 columns, numbered from 1"),
        (("3",), "a,b\n", "has no column 3"),
        (("1", "1"), "a,b\n", "two of the columns 1, 1 are the same"),
        (("a", "1"), "a,b\n", "two of the columns a, 1 are the same"),
    ],
)
def test_strict_table_rejects_invalid_rows(
    tmp_path: Path, columns: tuple[str, ...], content: str, message: str
) -> None:
    with pytest.raises(BilmError, match=message):
        rows(tmp_path / "a.csv", Table("csv", columns), content)


def test_rejects_column_name_without_header(tmp_path: Path) -> None:
    with pytest.raises(
        CorpusError, match="has no header, so column 'a' must be given by its number"
    ):
        rows(tmp_path / "a.csv", Table("csv", ("a",), header=False), "a,b\n")


def test_lenient_table_requires_only_its_columns(tmp_path: Path) -> None:
    table = Table("csv", ("a",), strict=False)
    content = 'a,b,b\n1\n"2"x,3\n4,5,6,7\n'
    found = rows(tmp_path / "a.csv", table, content)
    assert found == [(2, ["1"]), (3, ["2x"]), (4, ["4"])]
    with pytest.raises(CorpusError, match="line 2 has 1 columns, but the first row has 2"):
        rows(tmp_path / "a.csv", Table("csv", ("b",), strict=False), "a,b\n1\n")


@pytest.mark.parametrize("kind", ["csv", "tsv"])
def test_rejects_long_fields(tmp_path: Path, kind: Format) -> None:
    path = tmp_path / f"a.{kind}.gz"
    quote = b'"' if kind == "csv" else b""
    line = gzip.compress(b"x" * (1 << 20) + b"\n" * (kind == "csv"))
    path.write_bytes(gzip.compress(b"text\n" + quote) + line * 20)
    with pytest.raises(CorpusError, match=r"line 2 (is not valid CSV: field larger|has more than)"):
        list(Table(kind, ("text",)).rows(LineReader(path)))


def test_json_fields_returns_values_in_order() -> None:
    assert json_fields('{"a": 1, "b": ["x"]}', ["b", "a"], "f, line 1") == [["x"], 1]
    assert json_fields('{"a": 1, "a": 2}', ["a"], "f, line 1", strict=False) == [2]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1]", r"f, line 3 is \[1\]; expected a JSON object"),
        ("{", "f, line 3 is not a JSON object: Expecting"),
        ("", "f, line 3 is not a JSON object"),
        ("[" * 100_000, "f, line 3 is not a JSON object"),
        ('{"b": 1}', r"f, line 3 has no field 'a'; its fields are \['b'\]"),
        ('{"a": 1, "a": 2}', "f, line 3 is not a JSON object: a key is duplicated"),
    ],
)
def test_json_fields_rejects_invalid_lines(line: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        json_fields(line, ["a"], "f, line 3")


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"])
def test_checked_text_rejects_or_replaces_characters(text: str) -> None:
    assert checked_text("é😀", "it") == "é😀"
    with pytest.raises(
        CorpusError, match=r"^it contains a NUL or an unpaired .* remove it, or ask"
    ):
        checked_text(text, "it", hint=", or ask")
    assert checked_text(text, "it", "replace") == "a\ufffdb"


@pytest.mark.parametrize(
    ("columns", "content", "expected"),
    [
        (("text",), "id;text\n1;a, b\n", ["a, b"]),
        (("text", "id"), 'id;text\n1;"a; b"\n', ["a; b", "1"]),
        (("text",), '"id";"text"\n"1";"a, b"\n', ["a, b"]),
        (("2",), "1;a, b\n2;c\n", ["a, b"]),
        (("1",), "a;1\nb;2\n", ["a"]),
        # Files with commas
        (("text",), "id,text\n1,a; b\n", ["a; b"]),
        (("2",), "1,a; b\n2,c; d\n", ["a; b"]),
        (("1",), "a; b\nc\n", ["a; b"]),
        (("1",), '"1","a; b"\n', ["1"]),
        (("text",), "text\na; b\n", ["a; b"]),
    ],
)
def test_detects_semicolons(
    tmp_path: Path, columns: tuple[str, ...], content: str, expected: list[str]
) -> None:
    for strict in (True, False):
        table = Table("csv", columns, strict=strict)
        assert rows(tmp_path / "a.csv", table, content)[0][1] == expected


def test_rejects_ambiguous_name_in_lenient_table(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="the header contains 'a' more than once"):
        rows(tmp_path / "a.csv", Table("csv", ("a",), strict=False), "a,a\n1,2\n")


@pytest.mark.parametrize("end", ["\n\n", "  \n", "\t\n \n"])
def test_skips_trailing_blank_lines(tmp_path: Path, end: str) -> None:
    assert rows(tmp_path / "a.csv", Table("csv", ("b",)), f"a,b\n1,2\n{end}") == [(2, ["2"])]
