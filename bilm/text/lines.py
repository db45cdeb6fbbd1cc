"""bilm/text/lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, AnyStr

from bilm.errors import CorpusError

MAX_LINE = 16 << 20


def bounded_lines(file: IO[AnyStr], path: Path, max_line: int = MAX_LINE) -> Iterator[AnyStr]:
    """The lines of an open file; a longer one than `max_line` is refused before it is whole."""
    number = 0
    while line := file.readline(max_line + 1):
        number += 1
        if len(line) > max_line:
            raise CorpusError(
                f"{path}, line {number} has more than {max_line:,} bytes or characters; is this "
                "text, one a line? Break the line"
            )
        yield line
