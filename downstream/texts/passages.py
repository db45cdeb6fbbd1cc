"""Passages with questions and answers: SQuAD's JSON, or JSON lines, plain or compressed.

A file of JSON lines has one passage per line: `context`, and `qas`, a list of questions with `id`,
`question` and `answers`, each of which has `text` and `answer_start`, the index of its first
character in the context. SQuAD's JSON contains the same objects in `data[].paragraphs[]`. Other
fields are ignored. Passages with the same text are joined.

Every error names the file and the line, or the path of the object in the JSON, such as
`data[3].paragraphs[2].qas[0]`.

Cost: one pass over the file, whose texts are kept in memory; SQuAD's JSON is parsed as a whole.
Does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bilm.errors import CorpusError
from bilm.files.strict_json import parse_json
from bilm.text.lines import LineReader
from bilm.text.records import checked_value, numbered_lines
from bilm.text.tables import fields_of, format_of

PassageFormat = Literal["squad", "jsonl"]

_FORMATS: dict[str, PassageFormat] = {"json": "squad", "jsonl": "jsonl"}


@dataclass(frozen=True)
class Reference:
    """A reference answer, and the index of its first character in the context."""

    text: str
    start: int

    @property
    def end(self) -> int:
        """The index after its last character."""
        return self.start + len(self.text)


@dataclass(frozen=True)
class Question:
    """A question, its reference answers, and its place in the file."""

    id: str
    text: str
    references: tuple[Reference, ...]
    place: str


@dataclass(frozen=True)
class Passage:
    """A context and the questions about it."""

    text: str
    questions: tuple[Question, ...]


@dataclass(frozen=True)
class PassageReading:
    """How files are read; with `skip_unanswerable`, questions without an answer are left out."""

    file_format: PassageFormat | None = None  # None: squad for .json files, jsonl for .jsonl
    skip_unanswerable: bool = False

    def format_of(self, path: Path) -> PassageFormat:
        """Return the format of a file; by default, it follows from its extension."""
        if self.file_format is not None:
            return self.file_format
        by_extension = _FORMATS.get(format_of(path))
        if by_extension is None:
            raise CorpusError(
                f"{path}: the extension is neither .json nor .jsonl; pass --format squad or "
                "--format jsonl"
            )
        return by_extension


@dataclass(frozen=True)
class PassageFile:
    """The passages of a file that have questions, and the number of questions left out."""

    path: str
    passages: tuple[Passage, ...]
    num_skipped: int

    @property
    def num_questions(self) -> int:
        """The number of questions about all passages."""
        return sum(len(passage.questions) for passage in self.passages)


def read_passages(path: Path | str, reading: PassageReading) -> PassageFile:
    """Read and check a file of passages."""
    path = Path(path)
    objects = _squad_objects if reading.format_of(path) == "squad" else _line_objects
    collected = _Collected(reading.skip_unanswerable)
    for place, record in objects(path):
        collected.add(record, place)
    passages = [Passage(text, tuple(qas)) for text, qas in collected.questions.items() if qas]
    if not passages:
        skipped = f", apart from {collected.num_skipped:,} without an answer"
        raise CorpusError(
            f"{path} has no questions{skipped if collected.num_skipped else ''}; expected "
            "passages with context and qas"
        )
    return PassageFile(str(path), tuple(passages), collected.num_skipped)


def _line_objects(path: Path) -> Iterator[tuple[str, Any]]:
    for number, line in numbered_lines(LineReader(path)):
        place = f"{path}, line {number}"
        yield place, parse_json(line, place, CorpusError)


def _squad_objects(path: Path) -> Iterator[tuple[str, Any]]:
    text = "".join(LineReader(path).pieces())
    tree = parse_json(text, str(path), CorpusError)
    for article_place, article in list_items(tree, "data", str(path), ", "):
        yield from list_items(article, "paragraphs", article_place, ".")


def list_items(record: Any, field: str, place: str, separator: str) -> Iterator[tuple[str, Any]]:
    """Yield the items of the list `field` of a JSON object, with their places."""
    [items] = fields_of(record, (field,), place)
    if not isinstance(items, list):
        raise CorpusError(f"{place}{separator}{field} is {items!r:.60}; expected a list")
    for i, item in enumerate(items):
        yield f"{place}{separator}{field}[{i}]", item


def nonempty_text(value: Any, what: str) -> str:
    """Return a value that must be a text that is not empty; `what` names it in errors."""
    text = checked_value(value, what)
    if not text.strip():
        raise CorpusError(f"{what} is empty; add its text, or remove it")
    return text


class _Collected:
    """The questions of the objects that have been read, by the text of their passage."""

    def __init__(self, skip_unanswerable: bool) -> None:
        self.questions: dict[str, list[Question]] = {}
        self.num_skipped = 0
        self._skip = skip_unanswerable
        self._places: dict[str, str] = {}  # of questions by id

    def add(self, record: Any, place: str) -> None:
        """Check the object of a passage, and add its questions."""
        context, _ = fields_of(record, ("context", "qas"), place)
        context = nonempty_text(context, f"{place}: the context")
        separator = "." if place.endswith("]") else ": "
        questions = self.questions.setdefault(context, [])
        for where, item in list_items(record, "qas", place, separator):
            identity, text = fields_of(item, ("id", "question"), where)
            identity = nonempty_text(identity, f"{where}: the id")
            if identity in self._places:
                raise CorpusError(
                    f"{where} has the id {identity!r:.60}, which {self._places[identity]} has too; "
                    "give each question an id of its own"
                )
            self._places[identity] = where
            text = nonempty_text(text, f"{where}: the question")
            if references := self._references(item, context, where):
                questions.append(Question(identity, text, references, where))

    def _references(self, item: Any, context: str, where: str) -> tuple[Reference, ...]:
        """Return the reference answers of a question; none if it is left out."""
        is_impossible = item.get("is_impossible", False)
        if not isinstance(is_impossible, bool):
            raise CorpusError(
                f"{where}: is_impossible is {is_impossible!r:.60}; expected a boolean"
            )
        answers = [] if is_impossible else list(list_items(item, "answers", where, "."))
        if not answers:
            if not self._skip:
                reason = "is_impossible is true" if is_impossible else "answers is empty"
                raise CorpusError(
                    f"{where} has no answer: {reason}. Remove the question, or pass "
                    "--skip-unanswerable to leave out all such questions"
                )
            self.num_skipped += 1
        return tuple(_reference(answer, context, place) for place, answer in answers)


def _reference(answer: Any, context: str, where: str) -> Reference:
    text, start = fields_of(answer, ("text", "answer_start"), where)
    text = nonempty_text(text, f"{where}: the text")
    if not isinstance(start, int) or isinstance(start, bool) or start < 0:
        raise CorpusError(
            f"{where}: answer_start is {start!r:.60}; expected the index of a character, from 0"
        )
    if not context.startswith(text, start):
        found = context.find(text)
        where_it_is = f"occurs first at {found}" if found >= 0 else "does not occur in the context"
        raise CorpusError(
            f"{where}: the answer {text!r:.60} is not at its answer_start {start}, where the "
            f"context has {context[start : start + len(text)]!r:.60}; the answer {where_it_is}. "
            "Correct answer_start, or the text"
        )
    return Reference(text, start)
