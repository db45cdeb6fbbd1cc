"""Read pairs of texts, with or without labels, from CSV, TSV, JSON Lines, JSON or Parquet files.

Errors name the file and the line: a missing column, rows of different lengths, an empty text or
label. A text that occurs several times in a file is kept once, so that the biLM reads it once.

Cost: one pass over the file; the texts are kept in memory. Does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bilm.errors import ConfigError, CorpusError
from bilm.text.lines import LineReader
from bilm.text.records import numbered_lines, place_of, read_rows
from bilm.text.tables import Format, format_of
from downstream.texts.counts import counted
from downstream.texts.labelled import Ids, Placed, label_of, text_of


@dataclass(frozen=True)
class PairColumns:
    """The columns of both texts and of the label; without a label, only texts are read."""

    first: str
    second: str
    label: str | None = None

    def __post_init__(self) -> None:
        if len(set(self.names)) < len(self.names) or not all(self.names):
            raise ConfigError(
                f"the columns are {', '.join(map(repr, self.names))}; they must be different "
                "names, or numbers from 1"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        texts = (self.first, self.second)
        return texts if self.label is None else (*texts, self.label)


class TextPairs(NamedTuple):
    """Distinct texts, and the indices of the first and the second text of each pair."""

    texts: tuple[str, ...]
    first: Ids
    second: Ids


@dataclass(frozen=True)
class LabelledPairs(Placed):
    """The pairs of a file, their labels, and the number of the line or record of each pair."""

    pairs: TextPairs
    labels: tuple[str, ...]
    numbers: tuple[int, ...]
    source: str
    format: Format = "jsonl"

    def __len__(self) -> int:
        return len(self.labels)

    def both(self, pair: int) -> tuple[str, str]:
        """Return the two texts of a pair."""
        texts, first, second = self.pairs
        return texts[first[pair]], texts[second[pair]]


class _Row(NamedTuple):
    number: int
    texts: tuple[str, str]
    label: str


def distinct_texts(pairs: Iterable[tuple[str, str]]) -> TextPairs:
    """Return pairs of texts, in which equal texts have the same index."""
    places: dict[str, int] = {}
    rows = [[places.setdefault(text, len(places)) for text in pair] for pair in pairs]
    indices = np.array(rows, dtype=np.int64).reshape(-1, 2)
    return TextPairs(tuple(places), indices[:, 0], indices[:, 1])


def read_labelled_pairs(
    path: Path | str,
    columns: PairColumns,
    file_format: Format | None = None,
    header: bool | None = None,
) -> LabelledPairs:
    """Read a file of labelled pairs; the arguments are those of `read_labelled`."""
    reader = LineReader(Path(path))
    kind = _format_of(reader, file_format)
    rows = list(_rows(reader, columns, kind, header))
    return LabelledPairs(
        distinct_texts(row.texts for row in rows),
        tuple(row.label for row in rows),
        tuple(row.number for row in rows),
        str(path),
        kind,
    )


def read_pairs(
    reader: LineReader,
    columns: PairColumns,
    file_format: Format | None = None,
    header: bool | None = None,
) -> list[tuple[str, str]]:
    """Read a file of pairs without labels."""
    kind = _format_of(reader, file_format)
    return [row.texts for row in _rows(reader, columns, kind, header)]


def pairs_of_lines(reader: LineReader) -> list[tuple[str, str]]:
    """Read lines, each with two texts separated by a tab."""
    pairs = []
    for number, line in numbered_lines(reader):
        place = place_of(reader.path, "text", number)
        cells = line.split("\t")
        if len(cells) != 2:
            raise CorpusError(
                f"{place} has {counted(len(cells), 'column')}; expected two texts, separated by a "
                "tab"
            )
        pairs.append(_texts(cells, PairColumns("1", "2"), place))
    if not pairs:
        raise CorpusError(f"{reader.path} has no rows; expected pairs of texts")
    return pairs


def _format_of(reader: LineReader, file_format: Format | None) -> Format:
    reader.open_file().close()  # report a missing file before an unknown extension
    kind = format_of(reader.path) if file_format is None else file_format
    if kind == "text":
        raise CorpusError(
            f"{reader.path} is read as plain text, which has no columns; use csv, tsv, jsonl, json "
            "or parquet (--format)"
        )
    return kind


def _rows(
    reader: LineReader, columns: PairColumns, kind: Format, header: bool | None
) -> Iterator[_Row]:
    is_empty = True
    for number, values in read_rows(reader, kind, columns.names, header):
        is_empty = False
        place = place_of(reader.path, kind, number)
        label = "" if columns.label is None else label_of(values[2], place)
        yield _Row(number, _texts(values, columns, place), label)
    if is_empty:
        raise CorpusError(f"{reader.path} has no rows; expected pairs of texts")


def _texts(values: Sequence[Any], columns: PairColumns, place: str) -> tuple[str, str]:
    texts = []
    for name, value in zip((columns.first, columns.second), values, strict=False):
        text = text_of(value, f"{place}: the field {name!r}").strip()
        if not text:
            raise CorpusError(f"{place}: the text is empty (column {name}); remove the row")
        texts.append(text)
    return texts[0], texts[1]
