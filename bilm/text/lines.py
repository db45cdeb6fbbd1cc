"""Read text files, plain or compressed, as UTF-8 lines of bounded length.

The extension determines the compression: .gz, .bz2, .xz or .zst. A compressed file may consist of
several streams. Only line feeds end a line (`str.splitlines` would also split at U+2028 and
other separators that occur inside sentences), and a byte order mark is removed. Bytes that are not
UTF-8, NULs, overlong lines and damaged archives are errors that name the file and the line.

Cost: one block in memory, regardless of the size of the file; a line longer than `max_line_bytes`
is rejected before it is read completely.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol

from bilm.errors import CorpusError
from bilm.extras import require
from bilm.files.reading import open_regular

BLOCK_BYTES = 1 << 16

MAX_LINE_BYTES = 16 << 20

COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")

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

    With `errors="replace"`, bytes that are not UTF-8 and NULs become U+FFFD instead of errors.
    `hint` is appended to the remedy in error messages, for example ", or use --errors replace".
    """

    def __init__(
        self,
        path: Path,
        errors: Errors = "strict",
        max_line_bytes: int = MAX_LINE_BYTES,
        hint: str = "",
    ) -> None:
        self.path = path
        self.bytes_read = 0  # position in the file on disk, for progress bars
        self._errors = errors
        self._max_line_bytes = max_line_bytes
        self._hint = hint

    def lines(self) -> Iterator[str]:
        """Yield the lines without line endings (LF or CRLF)."""
        for block in self.blocks():
            yield from block.lines()

    def blocks(self, block_bytes: int = BLOCK_BYTES) -> Iterator[LineBlock]:
        """Yield the lines in blocks of about `block_bytes`; the last one may lack a line ending."""
        # With this bound, only the first line of a block can be too long.
        block_bytes = min(block_bytes, self._max_line_bytes)
        line = 1
        pending = bytearray()
        with open_regular(self.path, CorpusError) as raw:
            stream = _decompress(raw, self.path)
            while block := self._read(stream, block_bytes, line):
                self.bytes_read = raw.tell()
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

    def _read(self, stream: _Readable, size: int, line: int) -> bytes:
        try:
            return stream.read(size)
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


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def require_decompressor(path: Path) -> None:
    """Fail if the package that decompresses `path` is not installed."""
    if path.suffix == ".zst":
        require(f"reading {path}", "zstandard")


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
