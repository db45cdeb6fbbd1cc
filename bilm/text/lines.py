"""Read text files, plain or compressed, as lines of bounded length.

The extension determines the compression: .gz, .bz2, .xz or .zst. A compressed file may consist of
several streams. Text is UTF-8, or UTF-16 if it begins with the byte order mark of UTF-16, unless
the caller names another encoding. Only line feeds end a line (`str.splitlines` would also split at
U+2028 and other separators that occur inside sentences), and a byte order mark is removed. Bytes
that are not valid, NULs, overlong lines and damaged archives are errors that name the file and the
line.

Cost: one block in memory, regardless of the size of the file; a line longer than `max_line_bytes`
is rejected before it is read completely.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

from bilm.errors import ConfigError, CorpusError
from bilm.extras import require
from bilm.files.reading import open_regular
from bilm.text.spans import Span, SpanReader

BLOCK_BYTES = 1 << 16

MAX_LINE_BYTES = 16 << 20

COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")

_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

# In most encodings, a byte becomes at most 3 bytes of UTF-8.
_MAX_UTF8_BYTES_PER_BYTE = 3

# A zstd block of 4 bytes can expand to 128 KiB, so reading 4 KiB yields at most 128 MiB.
_ZSTD_READ_BYTES = 4096

Errors = Literal["strict", "replace"]


@dataclass(frozen=True)
class LineBlock:
    """Consecutive complete lines of a file, with line endings, and the number of the first line."""

    first_line: int
    text: str

    def lines(self) -> list[str]:
        """Return the lines without line endings (LF or CRLF)."""
        text = self.text.replace("\r\n", "\n") if "\r" in self.text else self.text
        return text.removesuffix("\n").split("\n")


class LineReader:
    """Reads the lines of the regular file `path`.

    With `errors="replace"`, bytes that are not valid and NULs become U+FFFD instead of errors.
    `hint` is appended to the remedy in error messages, for example ", or use --errors replace".
    `encoding` replaces the default, which is UTF-8, or UTF-16 with its byte order mark.
    """

    def __init__(
        self,
        path: Path,
        errors: Errors = "strict",
        max_line_bytes: int = MAX_LINE_BYTES,
        hint: str = "",
        encoding: str | None = None,
    ) -> None:
        if encoding is not None:
            check_encoding(encoding)
        self.path = path
        self.encoding = encoding
        self.bytes_read = 0  # position in the file on disk, for progress bars
        self._errors = errors
        self._max_line_bytes = max_line_bytes
        self._hint = hint

    def open_file(self) -> BinaryIO:
        """Open the file, which may be compressed; an error if it does not exist."""
        return open_regular(self.path, CorpusError)

    def lines(self) -> Iterator[str]:
        """Yield the lines without line endings (LF or CRLF)."""
        for block in self.blocks():
            yield from block.lines()

    def blocks(
        self, block_bytes: int = BLOCK_BYTES, span: Span | None = None
    ) -> Iterator[LineBlock]:
        """Yield the lines in blocks of about `block_bytes`; the last one may lack a line ending.

        A `span` limits them to a part of the file.
        """
        # With this bound, only the first line of a block can be too long.
        block_bytes = min(block_bytes, self._max_line_bytes)
        line = 1 if span is None else span.first_line
        pending = bytearray()
        with self._open(span) as stream:
            while block := self._read(stream, block_bytes, line):
                first_end = block.find(b"\n")
                added = len(block) if first_end < 0 else first_end
                if len(pending) + added > self._max_line_bytes:
                    raise CorpusError(
                        f"{self.path}, line {line} has more than {self._max_line_bytes:,} bytes; "
                        "expected a text file with one sentence or document per line: split the "
                        "line"
                    )
                cut = block.rfind(b"\n") + 1
                pending += block[:cut]
                if cut:
                    yield LineBlock(line, self._decode(pending, line))
                    line += pending.count(b"\n")
                    pending.clear()
                pending += block[cut:]
        if pending:
            yield LineBlock(line, self._decode(pending, line))

    def pieces(self) -> Iterator[str]:
        """Yield the text in pieces that may end anywhere, for formats with unbounded lines."""
        decoder = codecs.getincrementaldecoder("utf-8")(self._errors)
        line, mark = 1, "\ufeff"
        with self._open() as stream:
            while True:
                block = self._read(stream, BLOCK_BYTES, line)
                try:
                    text = decoder.decode(block, final=not block)
                except UnicodeDecodeError as e:
                    line += e.object.count(b"\n", 0, e.start)
                    raise CorpusError(
                        f"{self.path}, line {line} is not UTF-8: it has the byte "
                        f"{e.object[e.start]:#04x}; convert the file{self._hint}"
                    ) from None
                yield text.removeprefix(mark)
                line += text.count("\n")
                mark = ""
                if not block:
                    return

    @contextmanager
    def _open(self, span: Span | None = None) -> Iterator[_Readable]:
        """Open the file, or a span of it, as a stream of decompressed UTF-8."""
        with self.open_file() as raw:
            self._raw = raw
            if span is not None:
                yield SpanReader(raw, span)
                return
            yield _Utf8Reader(_decompress(raw, self.path), self.encoding, self._errors)

    def _read(self, stream: _Readable, size: int, line: int) -> bytes:
        try:
            block = stream.read(size)
            self.bytes_read = self._raw.tell()
            return block
        except UnicodeDecodeError as e:
            raise CorpusError(
                f"{self.path} is not {e.encoding}, in or after line {line}: {e.reason}; pass the "
                "encoding of the file"
            ) from None
        except EOFError:
            raise CorpusError(
                f"{self.path} is truncated: the compressed data ends in or after line {line}; copy "
                "or download the file again"
            ) from None
        except (OSError, zlib.error, lzma.LZMAError) as e:
            reason = getattr(e, "strerror", None) or e
            raise CorpusError(f"cannot read {self.path} from line {line} on: {reason}") from None

    def _decode(self, data: bytearray, first_line: int) -> str:
        if self._errors == "strict" and (nul := data.find(b"\0")) >= 0:
            line = first_line + data.count(b"\n", 0, nul)
            raise CorpusError(
                f"{self.path}, line {line} contains a NUL byte, so this may not be a text file; "
                f"remove the byte{self._hint}"
            )
        try:
            text = data.decode("utf-8", self._errors)
        except UnicodeDecodeError as e:
            line = first_line + data.count(b"\n", 0, e.start)
            column = e.start - data.rfind(b"\n", 0, e.start)
            raise CorpusError(
                f"{self.path}, line {line} is not UTF-8: byte {column} of the line is "
                f"{data[e.start]:#04x}; convert the file{self._hint}"
            ) from None
        if first_line == 1:
            text = text.removeprefix("\ufeff")
        return text.replace("\0", "\ufffd")


def check_encoding(encoding: str) -> None:
    """Reject a name that is not a text encoding of Python."""
    try:
        "".encode(encoding)
    except (LookupError, ValueError):
        raise ConfigError(
            f"{encoding!r} is not a known encoding; use a name such as utf-8, utf-16 or latin-1"
        ) from None


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def require_decompressor(path: Path) -> None:
    """Fail if the package that decompresses `path` is not installed."""
    if path.suffix == ".zst":
        require(f"reading {path}", "zstandard")


class _Utf8Reader:
    """Converts a stream to UTF-8 from `encoding`, or from UTF-16 if it has its byte order mark."""

    def __init__(self, stream: _Readable, encoding: str | None, errors: Errors) -> None:
        self._stream = stream
        self._encoding = encoding
        self._errors = errors
        self._decoder: codecs.IncrementalDecoder | None = None
        self._head: bytes | None = None  # the first bytes of the stream; None before the first read

    def read(self, size: int, /) -> bytes:
        if self._head is None:
            self._head = self._stream.read(len(codecs.BOM_UTF16_LE))
            encoding = self._encoding
            if encoding is None and self._head in _UTF16_MARKS:
                encoding = "utf-16"
            if encoding is not None:
                self._decoder = codecs.getincrementaldecoder(encoding)(self._errors)
        head, self._head = self._head, b""
        if self._decoder is None:
            return head + self._stream.read(max(0, size - len(head)))
        while True:
            data = head + self._stream.read(max(1, size // _MAX_UTF8_BYTES_PER_BYTE - len(head)))
            head = b""
            if text := self._decoder.decode(data, final=not data):
                return text.encode("utf-8", "surrogatepass")
            if not data:
                return b""


def _decompress(raw: BinaryIO, path: Path) -> _Readable:
    match path.suffix:
        case ".gz":
            return gzip.GzipFile(fileobj=raw)
        case ".bz2":
            return bz2.BZ2File(raw)
        case ".xz":
            return lzma.LZMAFile(raw)
        case ".zst":
            return _ZstdReader(raw, path)
    return raw


class _ZstdReader:
    """Decompresses any number of zstd frames; raises EOFError if the last one is incomplete."""

    def __init__(self, raw: BinaryIO, path: Path) -> None:
        require_decompressor(path)
        import zstandard

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
