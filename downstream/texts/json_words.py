"""Checks of the words and places in JSON records; errors name the file and the line."""

from __future__ import annotations

import re
from typing import Any

from bilm.errors import CorpusError
from bilm.text.tables import checked_text

_BREAK = re.compile("[\t\n\r]")  # ends a column or a line of a file of columns


def checked_words(value: Any, what: str, one_line: bool = False) -> tuple[str, ...]:
    """Return a list of words as a tuple; `what` names it in errors.

    With `one_line`, a word must not contain a tab or a line break.
    """
    if not isinstance(value, list) or not value:
        raise CorpusError(f"{what} is {value!r:.60}; expected a list of words that is not empty")
    for word in value:
        if not isinstance(word, str) or not word.strip():
            raise CorpusError(f"{what} contains {word!r:.60}; expected words that are not empty")
        if one_line and has_break(word):
            raise CorpusError(
                f"{what} contains {word!r:.60}; a word must not have a tab or a line break. Remove "
                "it, or divide the word"
            )
    checked_text("".join(value), what)
    return tuple(value)


def has_break(word: str) -> bool:
    """Return whether a word contains a tab or a line break."""
    return _BREAK.search(word) is not None


def checked_index(value: Any, num_words: int, what: str) -> int:
    """Return the index of a word; `what` names it in errors."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < num_words:
        raise CorpusError(f"{what} is {value!r:.60}; expected an integer from 0 to {num_words - 1}")
    return value
