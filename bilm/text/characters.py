"""Convert words to rows of character ids (rules 1 and 2 of docs/fidelity.md).

The bytes of a UTF-8 word are ids 0-255; five more ids mark boundaries and padding. These are the
261 raw ids of training. The published inference code adds one to every id, so that 0 can mean "no
token here"; this project marks absent tokens by lengths instead and adds `SHIFT` only when it reads
or writes the published format.

Cost: one row of int16 per word, about 0.7 microseconds per word.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

BEGIN_SENTENCE = 256

END_SENTENCE = 257

BEGIN_WORD = 258

END_WORD = 259

PADDING = 260

NUM_CHARACTERS = 261

SHIFT = 1

MIN_CHARACTERS = 3  # the length of a boundary word: begin word, one id, end word

BEGIN_SENTENCE_WORD = "<S>"

END_SENTENCE_WORD = "</S>"

UNKNOWN_WORD = "<UNK>"

SPECIAL_WORDS = (BEGIN_SENTENCE_WORD, END_SENTENCE_WORD, UNKNOWN_WORD)

CharIds = npt.NDArray[np.int16]

_BOUNDARIES = ((BEGIN_SENTENCE_WORD, BEGIN_SENTENCE), (END_SENTENCE_WORD, END_SENTENCE))


def char_ids(words: Iterable[str], max_characters: int = 50) -> CharIds:
    """Return the character ids of `words`: (words, max_characters).

    Lone surrogates, which UTF-8 cannot encode, are dropped.
    """
    encoded = [word.encode("utf-8", "ignore") for word in words]
    lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
    text = np.frombuffer(b"".join(encoded) or b"\0", dtype=np.uint8)
    return spell(text, np.cumsum(lengths) - lengths, lengths, max_characters)


def spell(
    text: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    max_characters: int,
) -> CharIds:
    """Return the character ids of words that are stored in `text`: (words, max_characters).

    Word i consists of `lengths[i]` bytes, starting at `starts[i]`; `text` must not be empty. A word
    of more than `max_characters - 2` bytes is truncated, possibly in the middle of a character.
    """
    if max_characters < MIN_CHARACTERS:
        raise ValueError(
            f"max_characters is {max_characters}; it must be at least {MIN_CHARACTERS}"
        )
    kept = np.minimum(lengths, max_characters - 2)
    columns = np.arange(max_characters - 2)
    is_inside = columns < kept[:, None]  # (words, max_characters - 2)
    places = np.where(is_inside, starts[:, None] + columns, 0)
    rows = np.full((len(starts), max_characters), PADDING, dtype=np.int16)
    rows[:, 0] = BEGIN_WORD
    np.copyto(rows[:, 1:-1], text[places], where=is_inside)
    rows[np.arange(len(rows)), kept + 1] = END_WORD
    for boundary, character in _BOUNDARIES:
        matches = _find(boundary.encode(), text, starts, lengths)
        rows[matches] = PADDING
        rows[matches, :MIN_CHARACTERS] = (BEGIN_WORD, character, END_WORD)
    return rows


def _find(
    word: bytes,
    text: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Return the indices of the words in `text` that are equal to `word`."""
    candidates = np.flatnonzero(lengths == len(word))
    letters = text[starts[candidates][:, None] + np.arange(len(word))]  # (candidates, len(word))
    is_equal: npt.NDArray[np.bool_] = (letters == np.frombuffer(word, dtype=np.uint8)).all(axis=1)
    return candidates[is_equal]
