"""Input files as chunks of whole lines: plain, .gz, .bz2, .xz or .zst; text, .jsonl, .csv or .tsv.

A chunk is about a mebibyte of lines with the name and line number where it begins, so that any
worker can take any chunk and still name file and line in an error. Only the reader that cuts the
chunks knows compression; CSV rows are parsed here too, since a quoted field may span lines.

Cost: one chunk in memory, whatever the size of the file. A line of more than `MAX_LINE_BYTES` is
refused before it is read whole.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import glob
import gzip
import json
import lzma
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, Protocol

from bilm.errors import ConfigError, CorpusError

CHUNK_BYTES = 1 << 20

MAX_LINE_BYTES = 16 << 20

DEFAULT_FIELD = "text"

# One zstd block of 4 bytes may stand for 128 KiB, so a read of 4 KiB grows to 128 MiB at worst.
_ZSTD_READ_BYTES = 4096

Format = Literal["text", "jsonl", "csv", "tsv"]

FORMATS: tuple[Format, ...] = ("text", "jsonl", "csv", "tsv")

COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")

_SUFFIXES: dict[str, Format] = {
    ".txt": "text",
    ".text": "text",
    ".tok": "text",
    ".jsonl": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
}


@dataclass(frozen=True)
class InputFile:
    """One file to read, its format, and the split that its lines belong to (None: by share)."""

    path: Path
    format: Format
    split: str | None = None


@dataclass(frozen=True)
class Chunk:
    """Whole lines of one file: `data` for text and jsonl, `rows` for parsed csv and tsv."""

    file: InputFile
    first_line: int
    data: bytes
    rows: Sequence[tuple[int, str]] | None
    bytes_read: int  # of all files on disk, up to the end of this chunk


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _ZstdReader:
    """A zstd file as a byte stream, over any number of frames; a cut frame is an EOFError."""

    def __init__(self, raw: BinaryIO) -> None:
        try:
            import zstandard
        except ImportError:
            raise CorpusError("reading .zst needs zstandard: pip install 'bilm[data]'") from None
        self._raw = raw
        self._error = zstandard.ZstdError
        self._decompressor = zstandard.ZstdDecompressor()
        self._frame: Any = None
        self._input = b""
        self._output = bytearray()

    def read(self, size: int, /) -> bytes:
        while len(self._output) < size:
            self._input = self._input or self._raw.read(_ZSTD_READ_BYTES)
            if not self._input:
                if self._frame is not None:
                    raise EOFError
                break
            self._frame = self._frame or self._decompressor.decompressobj()
            try:
                self._output += self._frame.decompress(self._input)
            except self._error as e:
                raise OSError(str(e)) from None
            self._input = b""
            if self._frame.eof:
                self._input = self._frame.unused_data
                self._frame = None
        result = bytes(self._output[:size])
        del self._output[:size]
        return result


def find_inputs(patterns: Sequence[str], file_format: Format | None, flag: str) -> list[InputFile]:
    """The files that `patterns` name, each once: patterns in order, their matches sorted."""
    paths: dict[Path, None] = {}
    for pattern in patterns:
        matches = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - absolute ones too
        if not matches and Path(pattern).exists():
            matches = [pattern]  # a name that happens to hold brackets
        if not matches and not glob.has_magic(pattern):
            raise CorpusError(f"{flag} {pattern}: there is no such file")
        if not matches:
            raise CorpusError(f"{flag} {pattern!r} matches no file; check the pattern")
        paths.update(dict.fromkeys(Path(match) for match in matches))
    return [InputFile(path, _check_file(path, file_format)) for path in paths]


def _check_file(path: Path, file_format: Format | None) -> Format:
    if path.is_dir():
        raise CorpusError(f"{path} is a directory; name its files, such as '{path}/*.txt'")
    if not path.is_file():
        raise CorpusError(f"{path} is not a regular file")
    if path.stat().st_size == 0:
        raise CorpusError(f"{path} is empty; remove it from the input")
    if file_format is not None:
        return file_format
    name = path.name
    for suffix in COMPRESSIONS:
        name = name.removesuffix(suffix)
    suffix = Path(name).suffix
    if suffix not in _SUFFIXES:
        raise CorpusError(
            f"{path} has the unknown extension {suffix!r}; known are {', '.join(_SUFFIXES)}, each "
            f"also with {', '.join(COMPRESSIONS)}; say --format {'|'.join(FORMATS)} to read it as "
            "one of these"
        )
    return _SUFFIXES[suffix]


def read_chunks(files: Iterable[InputFile], field: str, errors: str) -> Iterator[Chunk]:
    """The lines of all `files` in order, as chunks of about `CHUNK_BYTES`."""
    bytes_before = 0
    for file in files:
        empty = True
        try:
            with open(file.path, "rb") as raw:
                chunks = _cut_at_lines(raw, file, bytes_before)
                if file.format in ("csv", "tsv"):
                    chunks = _parse_rows(chunks, file, field, errors)
                for chunk in chunks:
                    empty = False
                    yield chunk
                bytes_before += raw.tell()
        except EOFError:
            raise CorpusError(
                f"{file.path} is cut short: the compressed data ends too early; fetch it again"
            ) from None
        except OSError as e:
            raise CorpusError(f"cannot read {file.path}: {e.strerror or e}") from None
        except (zlib.error, lzma.LZMAError) as e:
            raise CorpusError(f"cannot read {file.path}: {e}") from None
        if empty:
            raise CorpusError(f"{file.path} is empty; remove it from the input")


def _decompress(raw: BinaryIO, path: Path) -> _Readable:
    suffix = path.suffix
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=raw)
    if suffix == ".bz2":
        return bz2.BZ2File(raw)
    if suffix == ".xz":
        return lzma.LZMAFile(raw)
    if suffix == ".zst":
        return _ZstdReader(raw)
    return raw


def _cut_at_lines(raw: BinaryIO, file: InputFile, bytes_before: int) -> Iterator[Chunk]:
    """Cut `raw` into chunks of whole lines; the last line may lack its line feed."""
    stream = _decompress(raw, file.path)
    line = 1
    pending = b""
    while block := stream.read(CHUNK_BYTES):
        if line == 1 and not pending:
            block = block.removeprefix(codecs.BOM_UTF8)
        cut = block.rfind(b"\n") + 1
        if cut == 0 and len(pending) + len(block) > MAX_LINE_BYTES:
            raise CorpusError(
                f"{file.path}, line {line} has more than {MAX_LINE_BYTES:,} bytes; is this text, "
                "one sentence or document a line? Break the line"
            )
        if cut == 0:
            pending += block
            continue
        data = pending + block[:cut]
        pending = block[cut:]
        yield Chunk(file, line, data, None, bytes_before + raw.tell())
        line += data.count(b"\n")
    if pending:
        yield Chunk(file, line, pending, None, bytes_before + raw.tell())


def decode(chunk: Chunk, errors: str) -> str:
    """The text of `chunk`; bytes that are not UTF-8, and NULs, are errors or replaced."""
    data = chunk.data
    if b"\0" in data and errors == "strict":
        line = chunk.first_line + data.count(b"\n", 0, data.index(b"\0"))
        raise CorpusError(
            f"{chunk.file.path}, line {line} holds a NUL byte; is this text? Remove it, or say "
            "--errors replace"
        )
    try:
        text = data.decode("utf-8", errors)
    except UnicodeDecodeError as e:
        line = chunk.first_line + data.count(b"\n", 0, e.start)
        column = e.start - (data.rfind(b"\n", 0, e.start) + 1) + 1
        raise CorpusError(
            f"{chunk.file.path}, line {line} is not UTF-8: byte {column} of the line is "
            f"{data[e.start]:#04x}; convert the file, or say --errors replace"
        ) from None
    return text.replace("\0", "\ufffd") if "\0" in text else text


def _parse_rows(
    chunks: Iterator[Chunk], file: InputFile, field: str, errors: str
) -> Iterator[Chunk]:
    """Chunks of parsed rows: the wanted column, with the line where its row begins."""
    bytes_read = 0

    def lines() -> Iterator[str]:
        nonlocal bytes_read
        for chunk in chunks:
            bytes_read = chunk.bytes_read
            # Only line feeds break lines: str.splitlines would also break at U+2028 and others.
            yield from (
                f"{line}\n" for line in decode(chunk, errors).removesuffix("\n").split("\n")
            )

    csv.field_size_limit(MAX_LINE_BYTES)
    if file.format == "csv":
        reader = csv.reader(lines())
    else:
        reader = csv.reader(lines(), delimiter="	", quoting=csv.QUOTE_NONE)
    rows: list[tuple[int, str]] = []
    size = 0
    column: int | None = None
    first_line = 1
    try:
        for row in reader:
            line, first_line = first_line, reader.line_num + 1
            if column is None:
                column, is_header = _find_column(row, field, file.path)
                if is_header:
                    continue
            if not row:
                continue
            if len(row) <= column:
                raise CorpusError(
                    f"{file.path}, line {line} has {len(row)} columns; column {column + 1} is "
                    f"wanted (--field {field})"
                )
            rows.append((line, row[column]))
            size += len(row[column])
            if size >= CHUNK_BYTES:
                yield Chunk(file, rows[0][0], b"", rows, bytes_read)
                rows, size = [], 0
    except csv.Error as e:
        raise CorpusError(f"{file.path}, line {first_line} is not {file.format}: {e}") from None
    if rows:
        yield Chunk(file, rows[0][0], b"", rows, bytes_read)


def _find_column(row: list[str], field: str, path: Path) -> tuple[int, bool]:
    """The index of the wanted column, and whether `row` is a header that names it."""
    if field.isdecimal():
        if int(field) < 1:
            raise ConfigError(f"--field {field}: columns are numbered from 1")
        return int(field) - 1, False
    if field not in row:
        raise CorpusError(
            f"{path} has no column {field!r} in its header {row[:20]}; name one of these with "
            "--field, or give a column number (from 1) if the file has no header"
        )
    return row.index(field), True


class Lines(NamedTuple):
    """The texts of a chunk and, for errors, the line of the file where each begins."""

    texts: list[str]
    numbers: Sequence[int]


def read_lines(chunk: Chunk, field: str, errors: str) -> Lines:
    """The lines of `chunk`; blank ones are kept, so that numbers stay aligned."""
    if chunk.rows is not None:
        return Lines([text for _, text in chunk.rows], [number for number, _ in chunk.rows])
    text = decode(chunk, errors)
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    lines = text.removesuffix("\n").split("\n")
    numbers = range(chunk.first_line, chunk.first_line + len(lines))
    if chunk.file.format == "jsonl":
        lines = [
            _json_field(line, field, errors, chunk, number) if line.strip() else ""
            for line, number in zip(lines, numbers, strict=True)
        ]
    return Lines(lines, numbers)


def _json_field(line: str, field: str, errors: str, chunk: Chunk, number: int) -> str:
    place = f"{chunk.file.path}, line {number}"
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise CorpusError(f"{place} is not JSON: {e}") from None
    if not isinstance(record, dict) or field not in record:
        found = f"its fields are {list(record)[:20]}" if isinstance(record, dict) else "no object"
        raise CorpusError(f"{place} has no field {field!r}: {found}; name the text with --field")
    text = record[field]
    if not isinstance(text, str):
        raise CorpusError(f"{place}: the field {field!r} is {text!r:.80}; text is expected")
    # Escapes can say what bytes cannot: NUL and halves of surrogate pairs.
    if "\\u" in line and (replaced := _replace_unspeakable(text)) != text:
        if errors == "strict":
            raise CorpusError(
                f"{place}: the field {field!r} holds a NUL or half a surrogate pair, which are no "
                "text; remove it, or say --errors replace"
            )
        text = replaced
    return text


def _replace_unspeakable(text: str) -> str:
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.replace("\0", "\ufffd")
