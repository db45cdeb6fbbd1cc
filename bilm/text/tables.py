"""The formats of text files; columns of CSV and TSV files, and fields of JSON objects.

A column is given by its name in the header, or by its number, starting at 1. CSV fields may be
quoted and span lines; TSV has no quotes. CSV fields are separated by commas, or by semicolons if
the first rows show it. Errors name the file and the line where the row begins.

Cost: one row in memory. A field of more than 16 MiB is an error.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from bilm.errors import ConfigError, CorpusError
from bilm.text.lines import COMPRESSIONS, MAX_LINE_BYTES, Errors, LineBlock, LineReader

Format = Literal["csv", "tsv", "jsonl", "json", "parquet", "text"]

FORMATS: tuple[Format, ...] = get_args(Format)

_SAMPLE_ROWS = 20  # that determine the separator of a CSV file

_SUFFIXES: dict[str, Format] = {
    ".txt": "text",
    ".text": "text",
    ".tok": "text",
    ".jsonl": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
}


def format_of(path: Path, default: Format | None = None) -> Format:
    """Return the format that the extension of `path` denotes, ignoring a compression suffix.

    An unknown extension denotes `default`, and is an error without one.
    """
    name = path.name
    for suffix in COMPRESSIONS:
        name = name.removesuffix(suffix)
    suffix = Path(name).suffix
    kind = _SUFFIXES.get(suffix, default)
    if kind is None:
        raise CorpusError(
            f"{path} has the unknown extension {suffix!r}; known extensions are "
            f"{', '.join(_SUFFIXES)}, optionally followed by {', '.join(COMPRESSIONS)}; pass "
            f"--format {'|'.join(FORMATS)} to choose the format"
        )
    if kind == "parquet" and name != path.name:
        raise CorpusError(
            f"{path} is a compressed Parquet file; decompress it, because Parquet files are "
            "compressed internally"
        )
    return kind


class MissingColumnError(CorpusError):
    """A file does not have a column or a field."""


class Row(NamedTuple):
    """The requested values of a record, and its number: the line where it begins, or its position.

    Values are strings in CSV, TSV and text files.
    """

    number: int
    cells: list[Any]


@dataclass(frozen=True)
class Table:
    """The requested columns of a CSV or TSV file.

    `header` states whether the first row is a header; by default it is one if any column is given
    by name. With `strict`, rows of different lengths, duplicate names in the header and misplaced
    quotes are errors; otherwise a row may have any length that includes the requested columns, and
    only their names must be unique.
    """

    format: Format
    columns: tuple[str, ...]
    header: bool | None = None
    strict: bool = True

    def rows(self, reader: LineReader) -> Iterator[Row]:
        """Yield the non-blank rows of the reader's file, without the header."""
        csv.field_size_limit(MAX_LINE_BYTES)  # a process-wide setting, set only here
        blocks = reader.blocks()
        first = next(blocks, None)
        if first is None:
            return
        lines = _lines_with_ends(itertools.chain([first], blocks))
        if self.format == "csv":
            parser = csv.reader(lines, delimiter=self._separator(first), strict=self.strict)
        else:
            parser = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        positions: list[int] | None = None
        width, next_line = 0, 1
        try:
            for row in parser:
                line, next_line = next_line, parser.line_num + 1
                if not row or (width > 1 and len(row) == 1 and not row[0].strip()):
                    continue  # a blank line
                if positions is None:
                    positions, width = self._positions(row, reader.path), len(row)
                    if self._has_header:
                        continue
                if len(row) != width and (self.strict or len(row) <= max(positions)):
                    raise CorpusError(
                        f"{reader.path}, line {line} has {len(row)} columns, but the first row has "
                        f"{width}; check its separators and quotes"
                    )
                yield Row(line, [row[position] for position in positions])
        except csv.Error as e:
            raise CorpusError(
                f"{reader.path}, line {next_line} is not valid {self.format.upper()}: {e}"
            ) from None

    @property
    def _has_header(self) -> bool:
        if self.header is not None:
            return self.header
        return not all(map(str.isdecimal, self.columns))

    def _separator(self, sample: LineBlock) -> str:
        """Return the separator of a CSV file that begins with `sample`: a comma or a semicolon.

        It is a semicolon if only that yields the requested columns, or several columns. In a file
        without a header, it is also a semicolon if only that yields several columns of the same
        number in all rows.
        """
        commas, semicolons = (_sample_rows(sample, separator) for separator in ",;")
        if not semicolons or len(semicolons[0]) == 1:
            return ","
        if not commas or not self._includes(commas[0]):
            has_one = not commas or len(commas[0]) == 1
            return ";" if has_one or self._includes(semicolons[0]) else ","
        is_clear = _is_uniform(semicolons) and not (len(commas[0]) > 1 and _is_uniform(commas))
        return ";" if is_clear and not self._has_header else ","

    def _includes(self, row: list[str]) -> bool:
        """Return whether the first row has all requested columns."""
        return all(
            (self._has_header and name in row) or (name.isdecimal() and 1 <= int(name) <= len(row))
            for name in self.columns
        )

    def _positions(self, row: list[str], path: Path) -> list[int]:
        """Return the positions of the columns in the first row, which may be a header."""
        names = row if self._has_header else []
        duplicates = [
            name
            for name, count in Counter(names).items()
            if count > 1 and (self.strict or name in self.columns)
        ]
        if duplicates:
            raise CorpusError(
                f"{path}: the header contains {', '.join(map(repr, duplicates[:5]))} more than "
                "once; rename one of the columns"
            )
        positions = [self._position(name, row, path) for name in self.columns]
        if len(set(positions)) < len(positions):
            raise ConfigError(
                f"{path}: two of the columns {', '.join(self.columns)} are the same; pass "
                "different columns"
            )
        return positions

    def _position(self, name: str, row: list[str], path: Path) -> int:
        if self._has_header and name in row:
            return row.index(name)
        if name.isdecimal() and 1 <= int(name) <= len(row):
            return int(name) - 1
        if name.isdecimal():
            raise MissingColumnError(
                f"{path} has no column {name}: its first row has {len(row)} columns, numbered "
                "from 1"
            )
        if not self._has_header:
            raise CorpusError(
                f"{path} has no header, so column {name!r} must be given by its number, from 1"
            )
        raise MissingColumnError(
            f"{path} has no column {name!r} in its header {row[:20]!r:.200}; use one of these "
            "names, or a column number (from 1) if the file has no header"
        )


def _lines_with_ends(blocks: Iterable[LineBlock]) -> Iterator[str]:
    """Yield lines that end with LF, CRLF or CR, as the csv module expects them."""
    for block in blocks:
        yield from io.StringIO(block.text, newline="")


def _sample_rows(sample: LineBlock, separator: str) -> list[list[str]]:
    """Return the first rows of a CSV file, up to the first that is not valid."""
    rows: list[list[str]] = []
    parser = csv.reader(_lines_with_ends([sample]), delimiter=separator, strict=True)
    with suppress(csv.Error):
        for row in itertools.islice(filter(None, parser), _SAMPLE_ROWS):
            rows.append(row)
    return rows


def _is_uniform(rows: list[list[str]]) -> bool:
    return len({len(row) for row in rows}) == 1


def json_fields(line: str, fields: Sequence[str], place: str, strict: bool = True) -> list[Any]:
    """Return the values of `fields` in the JSON object `line`; `strict` rejects duplicate keys.

    `place` is the file and the line number, for error messages.
    """
    return fields_of(json_record(line, place, strict), fields, place)


def json_record(line: str, place: str, strict: bool = True) -> Any:
    """Return the parsed JSON of `line`; `strict` rejects duplicate keys."""
    try:
        return json.loads(line, object_pairs_hook=without_duplicates if strict else None)
    except (ValueError, RecursionError) as e:
        raise CorpusError(f"{place} is not a JSON object: {e}") from None


def fields_of(record: Any, fields: Sequence[str], place: str) -> list[Any]:
    """Return the values of `fields` in a parsed JSON object; `place` names it in errors."""
    if not isinstance(record, dict):
        raise CorpusError(f"{place} is {record!r:.60}; expected a JSON object")
    for field in fields:
        if field not in record:
            raise MissingColumnError(
                f"{place} has no field {field!r}; its fields are {list(record)[:20]}"
            )
    return [record[field] for field in fields]


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs as a dict; raise ValueError if a key is duplicated."""
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key is duplicated")
    return dict(pairs)


def checked_text(text: str, what: str, errors: Errors = "strict", hint: str = "") -> str:
    """Reject or replace NULs and unpaired surrogates, which JSON escapes can express.

    `what` names the text in the error message, and `hint` is appended to the remedy.
    """
    try:
        text.encode("utf-8")
        is_valid = "\0" not in text
    except UnicodeEncodeError:
        is_valid = False
    if is_valid:
        return text
    if errors == "strict":
        raise CorpusError(
            f"{what} contains a NUL or an unpaired surrogate, which is not valid text; "
            f"remove it{hint}"
        )
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.replace("\0", "\ufffd")
