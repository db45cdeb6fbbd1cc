"""Words as rows of character ids (FIDELITY 1 and 2 of docs/fidelity.md).

Bytes of the UTF-8 word are ids 0-255; five more ids mark borders and padding. These are the 261
raw ids of training. The published inference code shifts them all by one, so that 0 can stand for
"no token here"; we mark absent tokens by lengths instead, and need no shift anywhere but at the
border of that format (`SHIFT`).

Cost: one row of int16 per word; building a row takes about a microsecond.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

BEGIN_SENTENCE = 256

END_SENTENCE = 257

BEGIN_WORD = 258

END_WORD = 259

PADDING = 260

NUM_CHARACTERS = 261

SHIFT = 1

MIN_CHARACTERS = 3  # a border word fills three places

BEGIN_SENTENCE_WORD = "<S>"

END_SENTENCE_WORD = "</S>"

UNKNOWN_WORD = "<UNK>"

SPECIAL_WORDS = (BEGIN_SENTENCE_WORD, END_SENTENCE_WORD, UNKNOWN_WORD)

CharIds = npt.NDArray[np.int16]

_BOUNDARIES = {
    BEGIN_SENTENCE_WORD.encode(): [BEGIN_SENTENCE],
    END_SENTENCE_WORD.encode(): [END_SENTENCE],
}


def word_bytes(word: str) -> bytes:
    """The bytes of `word`; what UTF-8 cannot say (a lone surrogate) is left out."""
    return word.encode("utf-8", "ignore")


def char_ids_of_bytes(words: Sequence[bytes], max_characters: int = 50) -> CharIds:
    """Character ids of words given as bytes: (words, max_characters)."""
    ids = np.full((len(words), max_characters), PADDING, dtype=np.int16)
    ids[:, 0] = BEGIN_WORD
    for row, word in zip(ids, words, strict=True):
        body = _BOUNDARIES.get(word)
        if body is not None:
            row[1] = body[0]
            row[2] = END_WORD
            continue
        kept = np.frombuffer(word[: max_characters - 2], dtype=np.uint8)
        row[1 : 1 + len(kept)] = kept
        row[1 + len(kept)] = END_WORD
    return ids


def char_ids(words: Iterable[str], max_characters: int = 50) -> CharIds:
    """Character ids of words given as text: (words, max_characters).

    A word of more than `max_characters - 2` bytes is cut, in mid-character if need be.
    """
    return char_ids_of_bytes([word_bytes(word) for word in words], max_characters)
