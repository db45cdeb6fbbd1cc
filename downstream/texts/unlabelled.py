"""Texts to predict, exactly as they are in their file, so that offsets are those of the file.

A text is a line of a text file or of standard input, or a column of another file. Unlike in
`labelled.py`, white space at its ends is kept, and a list of words stays a list.

Cost: one pass over the file; the texts are kept in memory. Does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bilm.errors import CorpusError
from bilm.text.tables import checked_text
from downstream.texts.json_words import checked_words
from downstream.texts.labelled import TextColumns, text_rows

STANDARD_INPUT = "standard input"


@dataclass(frozen=True)
class UnlabelledText:
    """A text, and its file and line; `words` if the file has a list of words.

    The text of a list of words is the words, separated by spaces.
    """

    text: str
    place: str
    words: tuple[str, ...] | None = None

    @property
    def content(self) -> str | tuple[str, ...]:
        """The words if the file has them, otherwise the text."""
        return self.text if self.words is None else self.words


def read_unlabelled(path: Path | str, columns: TextColumns) -> list[UnlabelledText]:
    """Read the texts of a file; several columns are joined by a space, without empty cells."""
    texts = []
    for row in text_rows(path, columns):
        words = None
        if all(isinstance(cell, tuple) for cell in row.cells):
            every = [word for cell in row.cells for word in cell]
            words = checked_words(every, f"{row.place}: the text")
        elif any(isinstance(cell, tuple) for cell in row.cells):
            raise CorpusError(
                f"{row.place} has a string in one column and a list of words in another; they "
                "cannot be joined. Use one of them for all columns"
            )
        texts.append(UnlabelledText(row.joined, row.place, words))
    if not texts:
        raise CorpusError(f"{path} has no rows; expected texts")
    return texts


def lines_of_input(data: bytes) -> Iterator[str]:
    """Yield the lines of standard input; a byte order mark and empty lines at its end are removed.

    As in files, a line without text, a NUL, and bytes that are not UTF-8 are errors.
    """
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as e:
        bad = data.count(b"\n", 0, e.start) + 1
        raise CorpusError(f"{STANDARD_INPUT}, line {bad} is not UTF-8; convert it") from None
    lines = text.replace("\r\n", "\n").split("\n")  # and not at U+2028, as `str.splitlines` does
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise CorpusError(f"{STANDARD_INPUT} is empty; expected one text per line")
    for number, line in enumerate(lines, 1):
        place = f"{STANDARD_INPUT}, line {number}"
        if not line.strip():
            raise CorpusError(f"{place} is empty; remove it")
        yield checked_text(line, place)


def unlabelled_lines(lines: Iterable[str]) -> list[UnlabelledText]:
    """Return the lines of standard input as texts."""
    return [
        UnlabelledText(line, f"{STANDARD_INPUT}, line {number}")
        for number, line in enumerate(lines, 1)
    ]
