"""Checks of the words and places in JSON records; errors name the file and the line."""

from __future__ import annotations

from typing import Any

from bilm.errors import CorpusError


def checked_words(value: Any, what: str) -> tuple[str, ...]:
    """Return a list of words as a tuple; `what` names it in errors."""
    if not isinstance(value, list) or not value:
        raise CorpusError(f"{what} is {value!r:.60}; expected a list of words that is not empty")
    for word in value:
        if not isinstance(word, str) or not word.strip():
            raise CorpusError(f"{what} contains {word!r:.60}; expected words that are not empty")
    return tuple(value)


def checked_index(value: Any, num_words: int, what: str) -> int:
    """Return the index of a word; `what` names it in errors."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < num_words:
        raise CorpusError(f"{what} is {value!r:.60}; expected an integer from 0 to {num_words - 1}")
    return value
