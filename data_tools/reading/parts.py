"""Divide the input into parts, each of which one worker reads by itself.

A plain UTF-8 file with one text per line is divided at line starts. A compressed file cannot be
read from the middle, and a CSV record may contain line feeds, so any other file is one part. The
parts depend only on the files, and not on the number of workers.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bilm.errors import CorpusError
from bilm.files.reading import open_regular
from bilm.text.lines import COMPRESSIONS, MAX_LINE_BYTES
from bilm.text.spans import Span
from data_tools.reading.chunks import LINE_FORMATS, InputFile

# Up to 1,024 parts of at least 4 MiB, and more if there are more files.
MIN_PART_BYTES = 4 << 20

MAX_SPLIT_PARTS = 1024

# The number of the first line of a part is counted only for an error message. It is not 1, because
# a byte order mark is removed only from the first line of a file.
UNKNOWN_LINE = 2

_COUNTED_BYTES = 1 << 20


@dataclass(frozen=True)
class Part:
    """A file, or a span of it."""

    file: InputFile
    span: Span | None
    num_bytes: int  # on disk

    def with_line_number(self) -> Part:
        """Return the part with the number of its first line, which is counted."""
        if self.span is None or self.span.first_line != UNKNOWN_LINE:
            return self
        line, left = 1, self.span.start
        with open_regular(self.file.path, CorpusError) as file:
            while left and (block := file.read(min(left, _COUNTED_BYTES))):
                line += block.count(b"\n")
                left -= len(block)
        return replace(self, span=replace(self.span, first_line=line))


def plan_parts(inputs: Sequence[InputFile], encoding: str | None) -> list[Part]:
    """Return the parts of all `inputs`, in order."""
    total = sum(file.path.stat().st_size for file in inputs)
    part_bytes = max(MIN_PART_BYTES, -(-total // MAX_SPLIT_PARTS))
    return [part for file in inputs for part in _parts_of(file, encoding, part_bytes)]


def _parts_of(file: InputFile, encoding: str | None, part_bytes: int) -> Iterable[Part]:
    size = file.path.stat().st_size
    can_divide = (
        size > part_bytes
        and file.format in LINE_FORMATS
        and file.path.suffix not in COMPRESSIONS
        and encoding is None
    )
    starts = _line_starts(file, size, part_bytes) if can_divide else [0]
    if len(starts) == 1:
        return [Part(file, None, size)]
    ends = [*starts[1:], size]
    return [
        Part(file, Span(start, end, UNKNOWN_LINE if start else 1), end - start)
        for start, end in zip(starts, ends, strict=True)
    ]


def _line_starts(file: InputFile, size: int, part_bytes: int) -> list[int]:
    """Return the positions at which parts begin: 0, and line starts about `part_bytes` apart."""
    starts = [0]
    with open_regular(file.path, CorpusError) as raw:
        if raw.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return starts
        while starts[-1] + part_bytes < size:
            raw.seek(starts[-1] + part_bytes - 1)
            rest_of_line = raw.readline(MAX_LINE_BYTES)
            if not rest_of_line.endswith(b"\n") or raw.tell() >= size:
                break  # the last line, or an overlong one, which the reader rejects
            starts.append(raw.tell())
    return starts
