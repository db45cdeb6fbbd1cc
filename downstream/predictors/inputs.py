"""Checks of what is passed to the predictors: texts, words and pairs.

Any iterable is turned into a list once, so that an iterator loses nothing. An object of a wrong
type is a TypeError, and a text that cannot be predicted a CorpusError; both name the item.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any, TypeVar

from bilm.errors import CorpusError
from bilm.text.tables import checked_text

Item = TypeVar("Item")


def listed(items: Iterable[Item], kind: str) -> list[Item]:
    """Return the items of any iterable as a list; `kind` is such as "text"."""
    found = _items(items)
    if found is None:
        raise TypeError(
            f"the argument is {items!r:.60}; expected a list of {kind}s. For one {kind}, pass "
            f"[{kind}]"
        )
    return found


def checked_string(value: object, name: str) -> str:
    """Return a text; `name` is that of the text in errors."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r:.60}; expected a string")
    return checked_text(value, name)


def checked_sentence(value: object, name: str) -> list[str]:
    """Return the words of a sentence as a list, which may be empty."""
    words = _items(value)
    if words is None:
        raise TypeError(f"{name} is {value!r:.60}; expected a list of words")
    for word in words:
        if not isinstance(word, str):
            raise TypeError(f"{name} contains {word!r:.60}; expected words, which are strings")
        if not word.strip():
            raise CorpusError(f"{name} contains {word!r:.60}; expected words that are not empty")
    checked_text("".join(words), name)
    return words


def checked_words(value: object, name: str) -> list[str]:
    """Return the words of a sentence, of which there is at least one."""
    words = checked_sentence(value, name)
    if not words:
        raise CorpusError(f"{name} has no words; remove it")
    return words


def checked_document(value: object, name: str) -> list[list[str]]:
    """Return the words of each sentence of a document; neither list may be empty."""
    sentences = _items(value)
    if sentences is None:
        raise TypeError(f"{name} is {value!r:.60}; expected a list of sentences, as lists of words")
    if not sentences:
        raise CorpusError(f"{name} has no sentences; remove it")
    return [checked_words(words, f"{name}: sentence {i}") for i, words in enumerate(sentences)]


def checked_pairs(pairs: Iterable[Any], names: tuple[str, str]) -> list[tuple[str, str]]:
    """Return pairs of texts, which have the given names; no text may be empty."""
    listed_pairs = listed(pairs, "pair")
    result = []
    for i, pair in enumerate(listed_pairs):
        place = f"pair {i + 1} of {len(listed_pairs)}"
        texts = _items(pair)
        if texts is None or len(texts) != 2:
            raise TypeError(
                f"{place} is {pair!r:.60}; expected two texts, ({names[0]}, {names[1]})"
            )
        for text, name in zip(texts, names, strict=True):
            if not checked_string(text, f"{place}: the {name}").strip():
                raise CorpusError(f"{place}: the {name} is empty; remove the pair")
        result.append((texts[0], texts[1]))
    return result


def check_count(items: list[Any], kind: str, expected: int, owner: str) -> None:
    """Raise ValueError unless there is one item of this kind for each of the owners."""
    if len(items) != expected:
        raise ValueError(
            f"there are {len(items)} {kind} for {expected} {owner}; there must be one per item"
        )


def _items(value: Any) -> list[Any] | None:
    """Return the items of an iterable, or None if the value is not a collection of items."""
    if isinstance(value, str | bytes | Mapping | Set):
        return None
    try:
        iterator = iter(value)
    except TypeError:
        return None
    return list(iterator)
