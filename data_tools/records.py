"""Chunks of an input file to its lines of text, each with its line number.

A line is one sentence or one document. In text files it ends at a line feed and nowhere else
(U+2028 and the like are white space inside a line); in jsonl it is one field of an object, in csv
one column of a row, and may then hold line feeds of its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from bilm.errors import CorpusError
from data_tools.inputs import Chunk, decode


class Lines(NamedTuple):
    """The texts of a chunk and, for errors, the line of the file where each begins."""

    texts: list[str]
    numbers: Sequence[int]


def read_lines(chunk: Chunk, field: str, errors: str) -> Lines:
    """The lines of `chunk`; blank ones are kept, so that numbers stay aligned."""
    if chunk.rows is not None:
        return Lines([text for _, text in chunk.rows], [number for number, _ in chunk.rows])
    text = decode(chunk, errors)
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    lines = text.removesuffix("\n").split("\n")
    numbers = range(chunk.first_line, chunk.first_line + len(lines))
    if chunk.file.format == "jsonl":
        lines = [
            _json_field(line, field, errors, chunk, number) if line.strip() else ""
            for line, number in zip(lines, numbers, strict=True)
        ]
    return Lines(lines, numbers)


def _json_field(line: str, field: str, errors: str, chunk: Chunk, number: int) -> str:
    place = f"{chunk.file.path}, line {number}"
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise CorpusError(f"{place} is not JSON: {e}") from None
    if not isinstance(record, dict) or field not in record:
        found = f"its fields are {list(record)[:20]}" if isinstance(record, dict) else "no object"
        raise CorpusError(f"{place} has no field {field!r}: {found}; name the text with --field")
    text = record[field]
    if not isinstance(text, str):
        raise CorpusError(f"{place}: the field {field!r} is {text!r:.80}; text is expected")
    # Escapes can say what bytes cannot: NUL and halves of surrogate pairs.
    if "\\u" in line and (replaced := _replace_unspeakable(text)) != text:
        if errors == "strict":
            raise CorpusError(
                f"{place}: the field {field!r} holds a NUL or half a surrogate pair, which are no "
                "text; remove it, or say --errors replace"
            )
        text = replaced
    return text


def _replace_unspeakable(text: str) -> str:
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.replace("\0", "\ufffd")
