"""Read input files as chunks of texts: plain lines, JSON Lines, CSV or TSV, each also compressed.

A chunk is about 1 MiB of consecutive texts of one file with their line numbers, so that any
worker can process any chunk and still name the file and the line in an error. The reading process
decompresses and decodes, and parses CSV, since a quoted field may span lines; JSON, which is slower
to parse, is parsed by the workers.

Cost: one chunk in memory, regardless of the size of the file.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bilm.errors import CorpusError
from bilm.text.lines import Errors, LineReader, require_decompressor
from bilm.text.tables import Format, Table, checked_text, format_of, json_fields

CHUNK_BYTES = 1 << 20

DEFAULT_FIELD = "text"

_HINT = ", or use --errors replace"


@dataclass(frozen=True)
class InputFile:
    """A file to read, its format, and the split of its lines (None: chosen per line)."""

    path: Path
    format: Format
    split: str | None = None


@dataclass(frozen=True)
class Chunk:
    """Consecutive texts of one file: lines, JSON objects or cells, and the line of each."""

    file: InputFile
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
    return InputFile(path, format_of(path) if file_format is None else file_format)


def read_chunks(files: Iterable[InputFile], field: str, errors: Errors) -> Iterator[Chunk]:
    """Yield the texts of all `files` in order, in chunks of about `CHUNK_BYTES`.

    `field` is the column of CSV and TSV files; the objects of JSON Lines files are not parsed here
    (see `texts_of`).
    """
    bytes_before = 0
    for file in files:
        is_empty = True
        reader = LineReader(file.path, errors, hint=_HINT)
        is_table = file.format in ("csv", "tsv")
        for texts, line_numbers in _read_cells(reader, file, field) if is_table else _read(reader):
            is_empty = False
            yield Chunk(file, texts, line_numbers, bytes_before + reader.bytes_read)
        bytes_before += reader.bytes_read
        if is_empty:
            raise CorpusError(f"{file.path} is empty; remove it from the input")


def _read(reader: LineReader) -> Iterator[tuple[list[str], Sequence[int]]]:
    for block in reader.blocks(CHUNK_BYTES):
        lines = block.lines()
        yield lines, range(block.first_line, block.first_line + len(lines))


def _read_cells(
    reader: LineReader, file: InputFile, field: str
) -> Iterator[tuple[list[str], Sequence[int]]]:
    texts: list[str] = []
    line_numbers: list[int] = []
    size = 0
    for row in Table(file.format, (field,), strict=False).rows(reader):
        texts += row.cells
        line_numbers.append(row.line)
        size += len(row.cells[0])
        if size >= CHUNK_BYTES:
            yield texts, line_numbers
            texts, line_numbers, size = [], [], 0
    if texts:
        yield texts, line_numbers


def texts_of(chunk: Chunk, field: str, errors: Errors) -> list[str]:
    """Return the texts of `chunk`, for JSON Lines the strings in `field`; blank lines are kept."""
    if chunk.file.format != "jsonl":
        return chunk.texts
    return [
        _json_text(text, field, errors, f"{chunk.file.path}, line {line}") if text.strip() else ""
        for text, line in zip(chunk.texts, chunk.line_numbers, strict=True)
    ]


def _json_text(line: str, field: str, errors: Errors, place: str) -> str:
    [text] = json_fields(line, [field], place, strict=False)
    if not isinstance(text, str):
        raise CorpusError(f"{place}: the field {field!r} is {text!r:.80}; expected a string")
    return checked_text(text, f"{place}: the field {field!r}", errors, _HINT)
