"""Read input files, in all formats of `bilm/text/records.py`, as chunks of texts.

A chunk is about 1 MiB of consecutive texts of one file with their line numbers, so that an
error can name the file and the line.

Cost: one chunk in memory, regardless of the size of the file (for Parquet, one row group).
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bilm.errors import CorpusError
from bilm.text.lines import Errors, LineReader, require_decompressor
from bilm.text.parquet import require_pyarrow
from bilm.text.records import checked_value, choose_field, place_of, read_rows
from bilm.text.spans import Span
from bilm.text.tables import Format, format_of, json_fields

CHUNK_BYTES = 1 << 20

DEFAULT_FIELD = "text"

# The formats with one text per line, which can be read from the start of any line.
LINE_FORMATS = ("text", "jsonl")

_HINT = ", or use --errors replace"

_ENCODING_HINT = f", pass its --encoding{_HINT}"


@dataclass(frozen=True)
class InputFile:
    """A file to read, its format, and the split of its lines (None: chosen per line)."""

    path: Path
    format: Format
    split: str | None = None


@dataclass(frozen=True)
class Chunk:
    """Consecutive texts of one file: lines, JSON objects or cells, and the number of each."""

    file: InputFile
    field: str
    texts: list[str]
    line_numbers: Sequence[int]
    bytes_read: int  # of all files on disk, up to the end of this chunk


def find_inputs(patterns: Sequence[str], file_format: Format | None, flag: str) -> list[InputFile]:
    """Return the files that match `patterns`, each once: patterns in order, matches sorted."""
    paths: dict[Path, None] = {}
    for pattern in patterns:
        matches = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - absolute patterns too
        if not matches and Path(pattern).exists():
            matches = [pattern]  # a file name with brackets
        if not matches and not glob.has_magic(pattern):
            raise CorpusError(f"{flag} {pattern}: no such file")
        if not matches:
            raise CorpusError(f"{flag} {pattern!r} matches no file; check the pattern")
        paths.update(dict.fromkeys(Path(match) for match in matches))
    return [_input_file(path, file_format) for path in paths]


def _input_file(path: Path, file_format: Format | None) -> InputFile:
    if path.is_dir():
        raise CorpusError(f"{path} is a directory; use a pattern for its files: '{path}/*.txt'")
    if not path.is_file():
        raise CorpusError(f"{path} is not a regular file")
    if path.stat().st_size == 0:
        raise CorpusError(f"{path} is empty; remove it from the input")
    require_decompressor(path)
    kind = format_of(path) if file_format is None else file_format
    if kind == "parquet":
        require_pyarrow(path)
    return InputFile(path, kind)


def read_chunks(
    files: Iterable[InputFile],
    fields: Sequence[str] = (DEFAULT_FIELD,),
    errors: Errors = "strict",
    encoding: str | None = None,
) -> Iterator[Chunk]:
    """Yield the texts of all `files` in order, in chunks of about `CHUNK_BYTES`.

    The texts of a file are in the first of `fields` that it has. The objects of JSON Lines files
    are not parsed here (see `texts_of`).
    """
    bytes_before = 0
    for file in files:
        bytes_read = 0
        for chunk in read_file(file, fields, errors, encoding):
            bytes_read = chunk.bytes_read
            yield replace(chunk, bytes_read=bytes_before + bytes_read)
        bytes_before += bytes_read


def read_file(
    file: InputFile,
    fields: Sequence[str],
    errors: Errors,
    encoding: str | None,
    span: Span | None = None,
) -> Iterator[Chunk]:
    """Yield the texts of one file, or of a `span` of a file with one text per line."""
    is_empty = True
    reader = LineReader(file.path, errors, hint=_ENCODING_HINT, encoding=encoding)
    field = choose_field(reader, file.format, fields)
    if file.format in LINE_FORMATS:
        parts = _read_lines(reader, span)
    else:
        parts = _read_cells(reader, file, field, errors)
    for texts, line_numbers in parts:
        is_empty = False
        yield Chunk(file, field, texts, line_numbers, reader.bytes_read)
    if is_empty:
        raise CorpusError(f"{file.path} is empty; remove it from the input")


def _read_lines(reader: LineReader, span: Span | None) -> Iterator[tuple[list[str], Sequence[int]]]:
    for block in reader.blocks(CHUNK_BYTES, span):
        lines = block.lines()
        yield lines, range(block.first_line, block.first_line + len(lines))


def _read_cells(
    reader: LineReader, file: InputFile, field: str, errors: Errors
) -> Iterator[tuple[list[str], Sequence[int]]]:
    texts: list[str] = []
    line_numbers: list[int] = []
    size = 0
    for number, [value] in read_rows(reader, file.format, (field,), strict=False):
        what = f"{place_of(file.path, file.format, number)}: the field {field!r}"
        texts.append(checked_value(value, what, errors, _HINT))
        line_numbers.append(number)
        size += len(value)
        if size >= CHUNK_BYTES:
            yield texts, line_numbers
            texts, line_numbers, size = [], [], 0
    if texts:
        yield texts, line_numbers


def texts_of(chunk: Chunk, errors: Errors) -> list[str]:
    """Return the texts of `chunk`, for JSON Lines those in its field; blank lines are kept."""
    if chunk.file.format != "jsonl":
        return chunk.texts
    return [
        _json_text(text, chunk, line, errors) if text.strip() else ""
        for text, line in zip(chunk.texts, chunk.line_numbers, strict=True)
    ]


def _json_text(text: str, chunk: Chunk, line: int, errors: Errors) -> str:
    place = place_of(chunk.file.path, chunk.file.format, line)
    [value] = json_fields(text, [chunk.field], place, strict=False)
    return checked_value(value, f"{place}: the field {chunk.field!r}", errors, _HINT)
