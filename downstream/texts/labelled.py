"""Labelled text from files: CSV, TSV, JSONL or plain lines, each also as .gz.

A text is one column or several joined by a space; a label is a string (JSON numbers become one).
Everything that would train on something other than what the user meant is refused with file and
line: a missing column, a ragged row, an empty text or label, a NUL, bytes that are not UTF-8.

Cost: the file once through memory. Needs neither torch nor scikit-learn.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from bilm.errors import ConfigError, CorpusError
from bilm.text.lines import bounded_lines
from downstream.settings.sections import Format

Ids = npt.NDArray[np.int64]

_SUFFIXES: dict[str, Format] = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".txt": "text"}

_MAX_FIELD = 16 << 20


@dataclass(frozen=True)
class LabelledTexts:
    """Texts and their labels, in the order of the file."""

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    source: str = "the texts"

    def __len__(self) -> int:
        return len(self.texts)

    def subset(self, indices: Ids | Sequence[int]) -> LabelledTexts:
        """Those at `indices`, in that order."""
        return LabelledTexts(
            tuple(self.texts[i] for i in indices),
            tuple(self.labels[i] for i in indices),
            self.source,
        )

    def digest(self) -> str:
        """A sha256 of the texts (not of the labels): what representations depend on."""
        return digest_of(self.texts)


@dataclass(frozen=True)
class _Row:
    line: int
    label: str | None
    text: str


def digest_of(texts: Sequence[str]) -> str:
    """A sha256 of `texts`, each with its length, so that no two lists are alike by chance."""
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def read_labelled(
    path: Path | str,
    *,
    label_column: str = "label",
    text_columns: Sequence[str] = ("text",),
    file_format: Format | None = None,
    header: bool | None = None,
) -> LabelledTexts:
    """Read a file of labelled texts.

    Args:
        path: .csv, .tsv, .jsonl or .txt, plain or .gz. A line of .txt is a label, white space, and
            the text; columns do not concern it.
        label_column: a name in the header (a key of .jsonl), or a number from 1.
        text_columns: likewise; several are joined by a space, empty ones left out.
        file_format: instead of what the extension says.
        header: whether the first row of .csv or .tsv is one; by default it is when any column is
            given by name.
    """
    path = Path(path)
    rows = list(_rows(path, label_column, tuple(text_columns), file_format, header))
    if not rows:
        raise CorpusError(f"{path} has no rows; labelled texts are expected")
    labels = []
    for row in rows:
        if not row.label:
            raise CorpusError(f"{path}, line {row.line}: the label is empty")
        labels.append(row.label)
    return LabelledTexts(tuple(row.text for row in rows), tuple(labels), str(path))


def read_texts(
    path: Path | str,
    *,
    text_columns: Sequence[str] = ("text",),
    file_format: Format | None = None,
    header: bool | None = None,
) -> tuple[str, ...]:
    """Read texts without labels; a line of .txt is a text. Otherwise as `read_labelled`."""
    path = Path(path)
    rows = list(_rows(path, None, tuple(text_columns), file_format, header))
    if not rows:
        raise CorpusError(f"{path} has no rows; texts are expected")
    return tuple(row.text for row in rows)


def _rows(
    path: Path,
    label_column: str | None,
    text_columns: tuple[str, ...],
    file_format: Format | None,
    header: bool | None,
) -> Iterator[_Row]:
    """The rows of `path`, each with a text that is not empty."""
    kind = _format_of(path, file_format)
    columns = (*text_columns, label_column) if label_column is not None else text_columns
    if not text_columns or not all(columns):
        raise ConfigError("a column's name is empty; name the columns, or number them from 1")
    if len(set(columns)) < len(columns):
        raise ConfigError(f"the columns {', '.join(columns)} name one twice")
    if kind == "text":
        found = _plain_rows(path, label_column is not None)
    elif kind == "jsonl":
        found = _json_rows(path, label_column, text_columns)
    else:
        found = _table_rows(path, kind, label_column, text_columns, header)
    for row in found:
        if not row.text:
            where = "its columns " + " and ".join(text_columns) if kind != "text" else "the line"
            raise CorpusError(
                f"{path}, line {row.line}: the text is empty ({where}); remove the row"
            )
        yield row


def _format_of(path: Path, given: Format | None) -> Format:
    if path.is_dir():
        raise CorpusError(f"{path} is a directory; a file of texts is expected")
    if not path.is_file():
        raise CorpusError(f"there is no file {path}")
    if given is not None:
        return given
    suffix = Path(path.name.removesuffix(".gz")).suffix
    if suffix not in _SUFFIXES:
        raise CorpusError(
            f"{path} has the unknown extension {suffix!r}; known are {', '.join(_SUFFIXES)}, each "
            f"also with .gz; say --format {'|'.join(get_args(Format))} to read it as one of these"
        )
    return _SUFFIXES[suffix]


def _lines(path: Path, newline: str) -> Iterator[str]:
    """The lines of `path` as text, with their ends; NULs and what is not UTF-8 are refused."""
    number = 0
    try:
        with open(path, "rb") as raw:
            data: Any = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
            text = io.TextIOWrapper(data, encoding="utf-8-sig", newline=newline)
            for line in bounded_lines(text, path):
                number += 1
                if "\0" in line:
                    raise CorpusError(f"{path}, line {number} holds a NUL; is this text? Remove it")
                yield line
    except UnicodeDecodeError as e:
        raise CorpusError(
            f"{path}, soon after line {number} is not UTF-8: {e.object[e.start]:#04x}; convert "
            "the file"
        ) from None
    except EOFError:
        raise CorpusError(f"{path} is cut short: its compressed data ends too early") from None
    except zlib.error as e:
        raise CorpusError(f"cannot read {path}: {e}") from None
    except OSError as e:
        raise CorpusError(f"cannot read {path}: {e.strerror or e}") from None


def _plain_rows(path: Path, labelled: bool) -> Iterator[_Row]:
    for number, line in enumerate(_lines(path, "\n"), 1):
        if not line.strip():
            raise CorpusError(f"{path}, line {number} is empty; remove it")
        if not labelled:
            yield _Row(number, None, line.strip())
            continue
        label, *rest = line.split(maxsplit=1)
        yield _Row(number, label, rest[0].strip() if rest else "")


def _json_rows(
    path: Path, label_column: str | None, text_columns: tuple[str, ...]
) -> Iterator[_Row]:
    for number, line in enumerate(_lines(path, "\n"), 1):
        place = f"{path}, line {number}"
        try:
            record = json.loads(line, object_pairs_hook=_no_doubles)
        except (ValueError, RecursionError) as e:
            raise CorpusError(f"{place} is not a JSON object: {e}") from None
        if not isinstance(record, dict):
            raise CorpusError(f"{place} is {line.strip()[:60]!r}; a JSON object is expected")
        for column in (*text_columns, *([label_column] if label_column is not None else [])):
            if column not in record:
                raise CorpusError(
                    f"{place} has no field {column!r}; its fields are {list(record)[:20]}"
                )
        parts = [_json_text(record[column], column, place) for column in text_columns]
        label = None if label_column is None else _json_label(record[label_column], place)
        yield _Row(number, label, _joined(parts))


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


def _json_text(value: Any, column: str, place: str) -> str:
    """A string, or the list of its words."""
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        value = " ".join(value)
    if not isinstance(value, str):
        raise CorpusError(f"{place}: the field {column!r} is {value!r:.60}; text is expected")
    return _checked(value, f"the field {column!r}", place)


def _checked(value: str, what: str, place: str) -> str:
    if "\0" in value or any("\ud800" <= c <= "\udfff" for c in value):
        raise CorpusError(f"{place}: {what} holds a NUL or half a surrogate pair")
    return value


def _json_label(value: Any, place: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise CorpusError(
            f"{place}: the label is {value!r:.60}; a string or a whole number, please"
        )
    return _checked(str(value).strip(), "the label", place)


def _table_rows(
    path: Path,
    kind: Format,
    label_column: str | None,
    text_columns: tuple[str, ...],
    header: bool | None,
) -> Iterator[_Row]:
    csv.field_size_limit(_MAX_FIELD)
    lines = _lines(path, "")
    if kind == "csv":
        reader = csv.reader(lines, strict=True)
    else:
        reader = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    names = (*text_columns, *([label_column] if label_column is not None else []))
    places: list[int] | None = None
    width, next_line = 0, 1
    try:
        for row in reader:
            line, next_line = next_line, reader.line_num + 1
            if not row:
                continue
            if places is None:
                has_header = header if header is not None else not all(map(str.isdecimal, names))
                places, width = _find_columns(row, names, has_header, path), len(row)
                if has_header:
                    continue
            if len(row) != width:
                raise CorpusError(
                    f"{path}, line {line} has {len(row)} columns, and the first row has {width}; "
                    f"is this {kind}, with its separators quoted?"
                )
            cells = [row[place] for place in places]
            label = cells[-1].strip() if label_column is not None else None
            yield _Row(line, label, _joined(cells[: len(text_columns)]))
    except csv.Error as e:
        raise CorpusError(f"{path}, line {next_line} is not {kind}: {e}") from None


def _find_columns(row: list[str], names: Sequence[str], has_header: bool, path: Path) -> list[int]:
    """The places of the wanted columns in the first row, which may be a header."""
    if has_header:
        doubled = [name for name, n in Counter(row).items() if n > 1]
        if doubled:
            raise CorpusError(
                f"{path}: the header names {', '.join(map(repr, doubled[:5]))} more than once; "
                "rename one of the columns"
            )
    places = []
    for name in names:
        if has_header and name in row:
            places.append(row.index(name))
        elif name.isdecimal() and 1 <= int(name) <= len(row):
            places.append(int(name) - 1)
        elif name.isdecimal():
            raise CorpusError(
                f"{path} has no column {name}: its first row has {len(row)}, numbered from 1"
            )
        else:
            kind = f"header {row[:20]!r:.200}" if has_header else "file, which has no header"
            raise CorpusError(
                f"{path} has no column {name!r} in its {kind}; name one of these, or give a "
                "column's number (from 1) if the file has no header"
            )
    if len(set(places)) < len(places):
        raise ConfigError(f"{path}: the columns {', '.join(names)} name one twice")
    return places


def _joined(parts: Sequence[str]) -> str:
    return " ".join(part.strip() for part in parts if part.strip())
