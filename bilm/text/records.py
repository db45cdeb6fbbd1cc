"""Read the texts of a file in any format: lines, CSV, TSV, JSON Lines, JSON arrays or Parquet.

This is the reader of all commands. A record is a line, a row or an item of an array; its number,
from 1, is part of error messages.

Cost: one record in memory, and for Parquet one row group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bilm.errors import ConfigError, CorpusError
from bilm.text.json_array import json_items
from bilm.text.lines import Errors, LineReader
from bilm.text.parquet import parquet_rows, require_pyarrow
from bilm.text.tables import (
    Format,
    MissingColumnError,
    Row,
    Table,
    checked_text,
    fields_of,
    json_fields,
    without_duplicates,
)

_UNITS: dict[Format, str] = {"json": "item", "parquet": "row"}


@dataclass(frozen=True)
class TextInput:
    """A file with one text per record, and how to read it."""

    reader: LineReader
    format: Format
    field: str

    @classmethod
    def open(
        cls, path: Path, file_format: Format, fields: Sequence[str], encoding: str | None
    ) -> TextInput:
        """Check the arguments, which are values of flags, and choose the field."""
        if file_format == "parquet":
            require_pyarrow(path)
        check_fields(fields)
        reader = LineReader(path, hint=", or pass its --encoding", encoding=encoding)
        source = cls(reader, file_format, choose_field(reader, file_format, fields))
        next(source.texts(), None)  # report a missing column now
        return source

    def texts(self) -> Iterator[str]:
        """Yield the texts."""
        for number, [value] in read_rows(self.reader, self.format, (self.field,)):
            place = place_of(self.reader.path, self.format, number)
            yield checked_value(value, f"{place}: the field {self.field!r}")


def place_of(path: Path, file_format: Format, number: int) -> str:
    """Return the name of a record for error messages, such as "a.csv, line 3"."""
    return f"{path}, {_UNITS.get(file_format, 'line')} {number}"


def read_rows(
    reader: LineReader,
    file_format: Format,
    columns: tuple[str, ...],
    header: bool | None = None,
    strict: bool = True,
) -> Iterator[Row]:
    """Yield the values of `columns` in each record of the reader's file.

    A column is a name, or a number from 1 for CSV, TSV and Parquet. A line of a text file and a
    string in a JSON array are the only column of their record. Values are strings, except in JSON
    and Parquet files. `header` and `strict` are those of `Table`; `strict` also rejects duplicate
    keys and blank lines between the objects of a JSON Lines file.
    """
    if file_format == "text":
        return (Row(number, [line]) for number, line in enumerate(reader.lines(), 1))
    if file_format == "jsonl":
        return _json_line_rows(reader, columns, strict)
    if file_format == "json":
        return _json_array_rows(reader, columns, strict)
    if file_format == "parquet":
        return parquet_rows(reader, columns)
    return Table(file_format, columns, header, strict).rows(reader)


def numbered_lines(reader: LineReader) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers; blank lines are errors, except at the end of the file."""
    first_blank = None
    for number, line in enumerate(reader.lines(), 1):
        if not line.strip():
            first_blank = first_blank or number
            continue
        if first_blank is not None:
            raise CorpusError(f"{reader.path}, line {first_blank} is empty; remove it")
        yield number, line


def _json_line_rows(reader: LineReader, columns: tuple[str, ...], strict: bool) -> Iterator[Row]:
    lines = numbered_lines(reader) if strict else enumerate(reader.lines(), 1)
    for number, line in lines:
        if line.strip():
            place = place_of(reader.path, "jsonl", number)
            yield Row(number, json_fields(line, columns, place, strict))


def _json_array_rows(reader: LineReader, columns: tuple[str, ...], strict: bool) -> Iterator[Row]:
    hook = without_duplicates if strict else None
    for number, item in enumerate(json_items(reader, hook), 1):
        if isinstance(item, str) and len(columns) == 1:
            yield Row(number, [item])
        else:
            yield Row(number, fields_of(item, columns, place_of(reader.path, "json", number)))


def check_fields(fields: Sequence[str]) -> None:
    """Reject the values of `--field` if they are empty, repeated, or several with a number."""
    if not all(fields) or len(set(fields)) < len(fields):
        raise ConfigError(
            f"--field is {', '.join(map(repr, fields))}; each field must be a different name"
        )
    if len(fields) > 1 and any(map(str.isdecimal, fields)):
        raise ConfigError(
            f"--field is {', '.join(fields)}; several fields must be names, because a column "
            "number means that the file has no header"
        )


def choose_field(reader: LineReader, file_format: Format, fields: Sequence[str]) -> str:
    """Return the first of `fields` that the file has: in its header, or in its first JSON object.

    A single field is returned without reading the file.
    """
    if len(fields) == 1 or file_format == "text":
        return fields[0]
    for field in fields:
        try:
            next(iter(read_rows(reader, file_format, (field,), strict=False)), None)
        except MissingColumnError as e:
            missing = e
        else:
            return field
    raise CorpusError(f"none of the fields {', '.join(fields)} is present: {missing}")


def checked_value(value: Any, what: str, errors: Errors = "strict", hint: str = "") -> str:
    """Return a value that must be a string; `what` names it in errors. See `checked_text`."""
    if not isinstance(value, str):
        raise CorpusError(f"{what} is {value!r:.80}; expected a string")
    return checked_text(value, what, errors, hint)
