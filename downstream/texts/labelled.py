"""Read labelled texts from CSV, TSV, JSON Lines, JSON, Parquet or plain text files.

A text is one column, or several joined by a space; a label is a string (integers in JSON and
Parquet files are converted). `read_targets` reads other targets of texts in the same way. Anything
that could silently change the training data is an error that names the file and the line: a missing
column, rows of different lengths, an empty text or label, a NUL, bytes that are not UTF-8, an empty
line before the end of the file.

Cost: one pass over the file; the texts are kept in memory. Imports neither torch nor scikit-learn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from bilm.errors import ConfigError, CorpusError
from bilm.text.lines import LineReader
from bilm.text.records import numbered_lines, place_of, read_rows
from bilm.text.tables import Format, checked_text, format_of

Ids = npt.NDArray[np.int64]

AnyTarget = TypeVar("AnyTarget", covariant=True)


class Placed:
    """The base class of examples that were read from a file; subclasses are dataclasses.

    `numbers` has the number of the line or record of each example; without it, they are on
    successive lines.
    """

    source: str
    numbers: tuple[int, ...]
    format: Format

    def place(self, example: int) -> str:
        """Return the file and line of an example, for error messages."""
        number = self.numbers[example] if self.numbers else example + 1
        return place_of(Path(self.source), self.format, number)


@dataclass(frozen=True)
class TargetTexts(Placed, Generic[AnyTarget]):
    """Texts and their targets, such as numbers, in the order of the file."""

    texts: tuple[str, ...]
    targets: tuple[AnyTarget, ...]
    source: str
    numbers: tuple[int, ...] = ()
    format: Format = "text"

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class TextColumns:
    """The columns of texts and labels in a file; see `read_labelled`."""

    label_column: str = "label"
    text_columns: Sequence[str] = ("text",)
    file_format: Format | None = None
    header: bool | None = None


@dataclass(frozen=True)
class LabelledTexts(Placed):
    """Texts and their labels, in the order of the file."""

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    source: str = "the texts"
    numbers: tuple[int, ...] = ()
    format: Format = "text"

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class _Columns:
    texts: tuple[str, ...]
    label: str | None

    def __post_init__(self) -> None:
        if not self.texts or not all(self.names):
            raise ConfigError("the name of a column is empty; use its name, or its number from 1")
        if len(set(self.names)) < len(self.names):
            raise ConfigError(f"the columns {', '.join(self.names)} contain duplicates")

    @property
    def names(self) -> tuple[str, ...]:
        return self.texts if self.label is None else (*self.texts, self.label)


@dataclass(frozen=True)
class TextRow:
    """A row of a file: its number and place, its label as in the file, and its cells with text.

    A cell is a text, or a list of words. Without labels, `label` is None.
    """

    number: int  # of the line or record
    place: str  # for error messages
    label: Any
    cells: tuple[str | tuple[str, ...], ...]

    @property
    def joined(self) -> str:
        """The cells, joined by spaces."""
        return " ".join(cell if isinstance(cell, str) else " ".join(cell) for cell in self.cells)

    @property
    def text(self) -> str:
        """The cells without white space at their ends, joined by spaces."""
        cells = (cell if isinstance(cell, str) else " ".join(cell) for cell in self.cells)
        return " ".join(cell.strip() for cell in cells)


def digest_of(texts: Sequence[str] | Sequence[Sequence[str]]) -> str:
    """Return a sha256 of `texts` that includes their lengths, and so the boundaries of texts.

    A text is a string or a list of words; the boundaries of words are included too.
    """
    digest = hashlib.sha256()
    for text in texts:
        if not isinstance(text, str):
            digest.update(b"words" + len(text).to_bytes(8, "little"))
        for part in [text] if isinstance(text, str) else text:
            data = part.encode("utf-8", "surrogatepass")
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
        path: a .csv, .tsv, .jsonl, .json or .txt file, plain or compressed (.gz, .bz2, .xz, .zst),
            or a .parquet file. A line of a .txt file is a label, white space, and the text; it has
            no columns. A .json file is an array of objects.
        label_column: a name in the header (a key of .jsonl and .json), or a number from 1.
        text_columns: names or numbers of columns, which are joined by a space; empty cells are
            skipped.
        file_format: the format, if it does not follow from the extension.
        header: whether the first row of a .csv or .tsv file is a header (default: if any column is
            given by name).
    """
    columns = TextColumns(label_column, text_columns, file_format, header)
    data = read_targets(path, columns, label_of)
    return LabelledTexts(data.texts, data.targets, data.source, data.numbers, data.format)


def read_targets(
    path: Path | str, columns: TextColumns, parse: Callable[[Any, str], AnyTarget]
) -> TargetTexts[AnyTarget]:
    """Read a file of texts and their targets, as `read_labelled` does.

    `parse` converts the value of the label column, given the name of its place for errors.
    """
    reader = LineReader(Path(path))
    names = _Columns(tuple(columns.text_columns), columns.label_column)
    kind = _format_of(reader, columns.file_format)
    texts, targets, numbers = [], [], []
    for row in _rows(reader, names, kind, columns.header):
        texts.append(row.text)
        targets.append(parse(row.label, row.place))
        numbers.append(row.number)
    if not texts:
        raise CorpusError(f"{path} has no rows; expected labelled texts")
    return TargetTexts(tuple(texts), tuple(targets), str(path), tuple(numbers), kind)


def read_texts(reader: LineReader, columns: TextColumns) -> tuple[str, ...]:
    """Read texts without labels, as `read_labelled` does; a line of a .txt file is a text."""
    return tuple(row.text for row in text_rows(reader, columns))


def text_rows(reader: LineReader, columns: TextColumns) -> Iterator[TextRow]:
    """Yield the rows of a file without labels; each has a text that is not empty.

    A file without rows is an error.
    """
    names = _Columns(tuple(columns.text_columns), None)
    kind = _format_of(reader, columns.file_format)
    is_empty = True
    for row in _rows(reader, names, kind, columns.header):
        is_empty = False
        yield row
    if is_empty:
        raise CorpusError(f"{reader.path} has no rows; expected texts")


def _format_of(reader: LineReader, file_format: Format | None) -> Format:
    reader.open_file().close()  # report a missing file before an unknown extension
    return format_of(reader.path) if file_format is None else file_format


def _rows(
    reader: LineReader, columns: _Columns, kind: Format, header: bool | None
) -> Iterator[TextRow]:
    """Yield the rows of a file, each with a text that is not empty."""
    if kind == "text":
        rows = _plain_rows(reader, columns.label is not None)
    else:
        rows = _column_rows(reader, kind, columns, header)
    for row in rows:
        if not row.cells:
            where = "the line" if kind == "text" else "columns " + " and ".join(columns.texts)
            raise CorpusError(f"{row.place}: the text is empty ({where}); remove the row")
        yield row


def _plain_rows(reader: LineReader, labelled: bool) -> Iterator[TextRow]:
    for number, line in numbered_lines(reader):
        place = place_of(reader.path, "text", number)
        if not labelled:
            yield TextRow(number, place, None, (line,))
            continue
        label, *rest = line.split(maxsplit=1)
        yield TextRow(number, place, label, tuple(rest))


def _column_rows(
    reader: LineReader, kind: Format, columns: _Columns, header: bool | None
) -> Iterator[TextRow]:
    for number, values in read_rows(reader, kind, columns.names, header):
        place = place_of(reader.path, kind, number)
        cells: list[str | tuple[str, ...]] = []
        for name, value in zip(columns.texts, values, strict=False):
            text = text_of(value, f"{place}: the field {name!r}")
            if text.strip():
                cells.append(tuple(value) if isinstance(value, list) else text)
        label = None if columns.label is None else values[-1]
        yield TextRow(number, place, label, tuple(cells))


def text_of(value: Any, what: str) -> str:
    """Return a string, or the words of a list joined by spaces."""
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        value = " ".join(value)
    if not isinstance(value, str):
        raise CorpusError(f"{what} is {value!r:.60}; expected a string or a list of strings")
    return checked_text(value, what)


def label_of(value: Any, place: str) -> str:
    """Return a string or an integer as a label; `place` names its row in errors."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise CorpusError(f"{place}: the label is {value!r:.60}; expected a string or an integer")
    label = checked_text(str(value).strip(), f"{place}: the label")
    if not label:
        raise CorpusError(f"{place}: the label is empty; remove the row")
    return label
