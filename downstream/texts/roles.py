"""Semantic roles from JSON lines: one sentence per line, with its predicates.

An object has `tokens`, a list of words, and `predicates`, a list of objects with `index`, the place
of the predicate, and `tags`, one BIO tag per word. The only span of type V starts at the predicate;
it may have several words, and its other parts may have the type C-V. A predicate that is listed
twice with the same tags gives two equal examples. Other keys are ignored. Every error names the
file and the line.

Cost: one pass over the file. Does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bilm.errors import CorpusError
from bilm.text.lines import LineReader
from bilm.text.records import read_rows
from bilm.text.tables import checked_text
from downstream.texts.counts import counted
from downstream.texts.json_words import checked_index, checked_words
from downstream.texts.tag_sequences import find_bad_tag
from downstream.texts.tagged import TaggedExample, TaggedFile

PREDICATE_TYPE = "V"

_PREDICATE_TAG = f"B-{PREDICATE_TYPE}"


def read_roles(path: Path | str) -> TaggedFile:
    """Read a file of sentences with predicates; there is one example per predicate."""
    path = Path(path)
    sentences: list[tuple[str, ...]] = []
    examples: list[TaggedExample] = []
    for number, (tokens, predicates) in read_rows(
        LineReader(path), "jsonl", ("tokens", "predicates")
    ):
        place = f"{path}, line {number}"
        words = checked_words(tokens, f"{place}: tokens", one_line=True)
        for predicate, tags in _predicates(predicates, words, place):
            example = TaggedExample(len(sentences), tags, (number,) * len(words), predicate)
            examples.append(example)
        sentences.append(words)
    if not examples:
        raise CorpusError(f"{path} has no predicates; expected JSON lines of tokens and predicates")
    return TaggedFile(str(path), tuple(sentences), tuple(examples))


def _predicates(
    value: Any, words: tuple[str, ...], place: str
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the index and the tags of each predicate."""
    if not isinstance(value, list):
        raise CorpusError(f"{place}: predicates is {value!r:.60}; expected a list")
    known: dict[int, list[str]] = {}
    for item in value:
        index = item.get("index") if isinstance(item, dict) else None
        index = checked_index(index, len(words), f"{place}: the index of a predicate")
        tags = item.get("tags") if isinstance(item, dict) else None
        if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
            raise CorpusError(f"{place}: the tags of a predicate are not a list of strings")
        if len(tags) != len(words):
            raise CorpusError(
                f"{place}: the predicate at {index} has {counted(len(tags), 'tag')} for "
                f"{counted(len(words), 'word')}; there must be one tag per word"
            )
        what = f"{place}: the predicate at {index}"
        checked_text("".join(tags), f"{place}: a tag of the predicate at {index}")
        _check_tags(tags, index, what)
        if known.setdefault(index, tags) != tags:
            raise CorpusError(f"{what} occurs twice, with different tags; remove one of the two")
        yield index, tuple(tags)


def _check_tags(tags: list[str], index: int, what: str) -> None:
    """Reject tags that are not BIO, and a V anywhere but at the predicate."""
    bad = find_bad_tag(tags, "bio")
    if bad is not None:
        raise CorpusError(f"{what}: {bad.reason}. Correct it")
    if tags[index] != _PREDICATE_TAG:
        raise CorpusError(
            f"{what} has the tag {tags[index]!r:.60}; it must be {_PREDICATE_TAG}. Correct the "
            "index or the tags"
        )
    for i, tag in enumerate(tags):
        if tag == _PREDICATE_TAG and i != index:
            raise CorpusError(
                f"{what}: the word {i} has the tag {_PREDICATE_TAG} too; only the predicate has "
                f"it. Correct the tag; other parts of a predicate have the type C-{PREDICATE_TYPE}"
            )
