"""Whether a line of the input is one sentence, or a document that is split into sentences."""

from __future__ import annotations

from collections.abc import Callable

from bilm.text.sentences import split_sentences


def sentence_splitter(lines: str) -> Callable[[str], list[str]]:
    """Return the function that splits a line into sentences; `lines` is the content of a line."""
    return split_sentences if lines == "documents" else _whole_line


def _whole_line(line: str) -> list[str]:
    return [line]
