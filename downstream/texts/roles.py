"""Semantic roles from JSON lines: one sentence per line, with its predicates.

An object has `tokens`, a list of words, and `predicates`, a list of objects with `index`, the place
of the predicate, and `tags`, one BIO tag per word, in which the predicate itself has the type V.
Other keys are ignored. Every error names the file and the line.

Cost: one pass over the file. Does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bilm.errors import CorpusError
from bilm.text.lines import LineReader
from bilm.text.records import read_rows
from downstream.texts.json_words import checked_index, checked_words
from downstream.texts.tag_sequences import find_bad_tag
from downstream.texts.tagged import TaggedExample, TaggedFile

PREDICATE_TYPE = "V"


def read_roles(path: Path | str) -> TaggedFile:
    """Read a file of sentences with predicates; there is one example per predicate."""
    path = Path(path)
    sentences: list[tuple[str, ...]] = []
    examples: list[TaggedExample] = []
    for number, (tokens, predicates) in read_rows(
        LineReader(path), "jsonl", ("tokens", "predicates")
    ):
        place = f"{path}, line {number}"
        words = checked_words(tokens, f"{place}: tokens")
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
    for item in value:
        index = item.get("index") if isinstance(item, dict) else None
        index = checked_index(index, len(words), f"{place}: the index of a predicate")
        tags = item.get("tags") if isinstance(item, dict) else None
        if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
            raise CorpusError(f"{place}: the tags of a predicate are not a list of strings")
        if len(tags) != len(words):
            raise CorpusError(
                f"{place}: the predicate at {index} has {len(tags)} tags, but there are "
                f"{len(words)} words; there must be one tag per word"
            )
        bad = find_bad_tag(tags, "bio")
        if bad is not None:
            raise CorpusError(f"{place}: the predicate at {index}: {bad.reason}")
        yield index, tuple(tags)
