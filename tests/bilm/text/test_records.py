from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bilm.errors import BilmError, ConfigError, CorpusError
from bilm.text.lines import LineReader
from bilm.text.records import TextInput, check_fields, choose_field, place_of, read_rows
from bilm.text.tables import Format, format_of

TEXTS = ["one", "", "two, 3; 4", "é日"]
CONTENTS: dict[str, str] = {
    "a.txt": "\n".join(TEXTS),
    "a.csv": 'id,text\n1,one\n2,\n3,"two, 3; 4"\n4,é日\n',
    "semicolons.csv": 'id;text\n1;one\n2;\n3;"two, 3; 4"\n4;é日\n',
    "a.tsv": "id\ttext\n1\tone\n2\t\n3\ttwo, 3; 4\n4\té日\n",
    "a.jsonl": "".join(json.dumps({"id": 1, "text": text}) + "\n" for text in TEXTS) + "\n",
    "strings.json": json.dumps(TEXTS),
    "objects.json": json.dumps([{"id": 1, "text": text} for text in TEXTS], indent=1),
}


def texts(path: Path, fields: list[str], encoding: str | None = None) -> list[str]:
    return list(TextInput.open(path, format_of(path), fields, encoding).texts())


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-8-sig"])
def test_reads_the_same_texts_from_all_formats(tmp_path: Path, name: str, encoding: str) -> None:
    path = tmp_path / name
    path.write_bytes(CONTENTS[name].encode(encoding))
    assert texts(path, ["text"]) == TEXTS


def test_reads_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").table({"id": [1, 2, 3, 4], "body": TEXTS})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert texts(tmp_path / "a.parquet", ["text", "body"]) == TEXTS
    with pytest.raises(CorpusError, match=r"a\.parquet, row 1: the field 'id' is 1; expected a st"):
        texts(tmp_path / "a.parquet", ["id"])


@pytest.mark.parametrize("name", CONTENTS)
def test_takes_the_first_field_that_is_present(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(CONTENTS[name], encoding="utf-8")
    assert texts(path, ["title", "text", "id"]) == TEXTS
    reader, kind = LineReader(path), format_of(path)
    if name not in ("a.txt", "strings.json"):  # these have no fields
        assert choose_field(reader, kind, ["id", "text"]) == "id"
        with pytest.raises(CorpusError, match=r"none of the fields a, b is present: .*'id', 'text"):
            choose_field(reader, kind, ["a", "b"])
    assert choose_field(reader, kind, ["missing"]) == "missing"  # reported when it is read


def test_later_records_must_have_the_chosen_field(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n{"body": "b"}\n')
    with pytest.raises(CorpusError, match=r"line 2 has no field 'text'"):
        texts(path, ["text", "body"])


@pytest.mark.parametrize("fields", [[""], ["a", "a"], ["text", "2"], ["1", "2"]])
def test_rejects_ambiguous_fields(fields: list[str]) -> None:
    with pytest.raises(ConfigError, match="--field is"):
        check_fields(fields)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "a"}\n\n{"text": "b"}\n', "line 2 is empty; remove it"),
        ("a.jsonl", '{"text": "a", "text": "b"}\n', "a key is duplicated"),
        ("a.json", '[{"text": "a", "text": "b"}]', "item 1 .*a key is duplicated"),
        ("a.json", '["a", 3]', r"item 2 is 3; expected a JSON object"),
        ("a.json", '["a", {"text": null}]', "item 2: the field 'text' is None; expected a string"),
        ("a.json", '["a\\u0000"]', "item 1: the field 'text' contains a NUL"),
    ],
)
def test_rejects_invalid_records(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(CorpusError, match=message):
        texts(path, ["text"])


def test_strings_have_one_column(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('["a"]')
    with pytest.raises(BilmError, match="expected a JSON object"):
        list(read_rows(LineReader(path), "json", ("text", "label")))


@pytest.mark.parametrize(
    ("kind", "expected"), [("csv", "a, line 3"), ("json", "a, item 3"), ("parquet", "a, row 3")]
)
def test_names_records(kind: Format, expected: Any) -> None:
    assert place_of(Path("a"), kind, 3) == expected
