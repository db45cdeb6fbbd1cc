"""Texts to predict, exactly as they are in their file, so that offsets are those of the file.

A text is a line of a text file or of standard input, or a column of another file. Unlike in
`labelled.py`, white space at its ends is kept, and a list of words stays a list.

Cost: one pass over the file; the texts are kept in memory. Does not import torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from bilm.errors import CorpusError
from bilm.text.lines import LineReader
from downstream.texts.json_words import checked_words
from downstream.texts.labelled import TextColumns, text_rows


class StandardInput(LineReader):
    """Reads the bytes of standard input as if they were a file; errors name "standard input"."""

    def __init__(self, content: bytes) -> None:
        super().__init__(Path("standard input"))
        self._content = content

    def open_file(self) -> BinaryIO:
        """Open the bytes."""
        return BytesIO(self._content)


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


def read_unlabelled(reader: LineReader, columns: TextColumns) -> list[UnlabelledText]:
    """Read the texts of a file; several columns are joined by a space, without empty cells."""
    texts = []
    for row in text_rows(reader, columns):
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
    return texts
