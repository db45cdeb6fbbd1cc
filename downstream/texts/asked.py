"""Questions without answers, for prediction: JSON lines with `context` and its questions.

The questions are `question`, a string, optionally with an `id`; or `questions`, a list of strings;
or `qas`, a list of objects with `question` and, optionally, `id`, as in the files for training.
Other fields are ignored. Every error names the file and the line. Does not import torch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from bilm.errors import CorpusError
from bilm.files.strict_json import parse_json
from bilm.text.lines import LineReader
from bilm.text.records import numbered_lines, place_of
from bilm.text.tables import fields_of
from downstream.texts.passages import list_items, nonempty_text

_FIELDS = ("question", "questions", "qas")


class AskedQuestion(NamedTuple):
    """A question about a context, and its id if it has one."""

    question: str
    context: str
    id: str | None = None


def read_asked(reader: LineReader) -> list[AskedQuestion]:
    """Read the questions of a file of JSON lines, plain or compressed."""
    result = []
    for number, line in numbered_lines(reader):
        place = place_of(reader.path, "jsonl", number)
        record = parse_json(line, place, CorpusError)
        [context] = fields_of(record, ("context",), place)
        context = nonempty_text(context, f"{place}: the context")
        result += [AskedQuestion(text, context, name) for text, name in _questions(record, place)]
    if not result:
        raise CorpusError(
            f"{reader.path} has no questions; expected JSON lines of context and question"
        )
    return result


def _questions(record: dict[str, Any], place: str) -> list[tuple[str, str | None]]:
    """Return the text and the id of each question of an object."""
    given = [field for field in _FIELDS if field in record]
    if len(given) != 1:
        raise CorpusError(
            f"{place} has {' and '.join(given) or 'no question'}; expected one of the fields "
            f"{', '.join(_FIELDS)}"
        )
    if given == ["question"]:
        return [(nonempty_text(record["question"], f"{place}: the question"), _id(record, place))]
    result: list[tuple[str, str | None]] = []
    for where, item in list_items(record, given[0], place, ": "):
        name = None
        if given == ["qas"]:
            [text] = fields_of(item, ("question",), where)
            name = _id(item, where)
        else:
            text = item
        result.append((nonempty_text(text, f"{where}: the question"), name))
    return result


def _id(record: dict[str, Any], place: str) -> str | None:
    """Return the id of a question, if it has one."""
    return None if "id" not in record else nonempty_text(record["id"], f"{place}: the id")
