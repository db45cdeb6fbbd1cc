"""Documents with coreference clusters, from JSON lines or CoNLL-2012 columns, also compressed.

A line of a JSON Lines file is an object with `sentences`, a list of lists of words, and `clusters`,
a list of lists of mentions. A mention is `[first, last]`: the indices, from 0, of its first and its
last word among all words of the document. Optional fields are `doc` or `doc_key` (the name of the
document), `genre`, and `speakers` (a list per sentence: one speaker per word); other fields are
ignored. Every error names the file and the line.

Cost: one pass over the file; the documents are kept in memory. Does not import torch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bilm.errors import CorpusError
from bilm.text.lines import COMPRESSIONS, LineReader
from bilm.text.records import numbered_lines
from bilm.text.tables import checked_text, fields_of, json_record
from downstream.texts.clusters import Clusters, Mention, sorted_clusters, without_singletons
from downstream.texts.conll2012 import read_conll2012
from downstream.texts.json_words import checked_words

DocumentFormat = Literal["jsonl", "conll"]

Sentences = tuple[tuple[str, ...], ...]

_CONLL_SUFFIXES = (".conll", "_conll")


@dataclass(frozen=True)
class Document:
    """The sentences of a document as words, and its clusters of mentions.

    `genre` and `speakers`, one per word, are None if the file does not have them. `line` is where
    the document begins in its file.
    """

    name: str
    sentences: Sentences
    clusters: Clusters
    genre: str | None = None
    speakers: tuple[str, ...] | None = None
    line: int = 0

    @property
    def words(self) -> tuple[str, ...]:
        """The words of all sentences."""
        return tuple(itertools.chain.from_iterable(self.sentences))

    @property
    def has_singletons(self) -> bool:
        """Whether a cluster has only one mention."""
        return len(without_singletons(self.clusters)) < len(self.clusters)


@dataclass(frozen=True)
class DocumentFile:
    """The documents of a file."""

    path: str
    documents: tuple[Document, ...]

    def place(self, document: Document) -> str:
        """Return the file and line of a document, for messages."""
        return f"{self.path}, line {document.line}"


def read_documents(path: Path | str, file_format: DocumentFormat | None = None) -> DocumentFile:
    """Read a file of documents; by default, the format follows from its name."""
    path = Path(path)
    if file_format is None:
        name = path.name
        for suffix in COMPRESSIONS:
            name = name.removesuffix(suffix)
        file_format = "conll" if name.endswith(_CONLL_SUFFIXES) else "jsonl"
    documents = tuple(_conll(path) if file_format == "conll" else _json_lines(path))
    if not documents:
        expected = "one JSON object per line"
        if file_format == "conll":
            expected = "`#begin document (NAME); part 000`"
        raise CorpusError(f"{path} has no documents; expected {expected}")
    file = DocumentFile(str(path), documents)
    _check_names(file)
    return file


def _check_names(file: DocumentFile) -> None:
    """Reject two documents with the same name; in CoNLL-2012, the part belongs to the name."""
    lines: dict[str, int] = {}
    for document in file.documents:
        line = lines.setdefault(document.name, document.line)
        if line != document.line:
            raise CorpusError(
                f"{file.place(document)}: the document has the name {document.name!r:.80}, and so "
                f"has that of line {line}; give each document a name of its own"
            )


class MentionError(ValueError):
    """A mention that breaks a rule; `word` is the index of its last word, if it is one."""

    def __init__(self, message: str, word: Any = None) -> None:
        super().__init__(message)
        self.word = word


def checked_clusters(
    clusters: Iterable[Iterable[tuple[Any, Any]]],
    sentences: Sentences,
    names: Sequence[str] | None = None,
) -> Clusters:
    """Return the clusters as mentions; raise MentionError for the first rule that one breaks.

    `names` are those of the clusters in errors, by default their indices.
    """
    sentence_of = [i for i, words in enumerate(sentences) for _ in words]
    owners: dict[Mention, int] = {}
    result = []

    def name(cluster: int) -> object:
        return cluster if names is None else names[cluster]

    for i, cluster in enumerate(clusters):
        mentions = [_checked_mention(first, last, sentence_of) for first, last in cluster]
        if not mentions:
            raise MentionError(f"cluster {name(i)} has no mentions; remove it")
        for mention in mentions:
            owner = owners.setdefault(mention, i)
            if owner != i:
                raise MentionError(
                    f"the mention {list(mention)} is in the clusters {name(owner)} and {name(i)}; "
                    "a mention belongs to one cluster. Join the clusters, or remove it from one "
                    "of them",
                    mention.last,
                )
        if len(set(mentions)) < len(mentions):
            twice = next(m for k, m in enumerate(mentions) if m in mentions[:k])
            raise MentionError(
                f"cluster {name(i)} contains the mention {list(twice)} twice; remove one",
                twice.last,
            )
        result.append(mentions)
    return sorted_clusters(result)


def _checked_mention(first: Any, last: Any, sentence_of: Sequence[int]) -> Mention:
    num_words = len(sentence_of)
    for value in (first, last):
        if not isinstance(value, int) or isinstance(value, bool):
            raise MentionError(
                f"the mention [{first!r:.20}, {last!r:.20}] is not a pair of integers; expected "
                "the indices of its first and its last word"
            )
    if first > last:
        raise MentionError(
            f"the mention [{first}, {last}] starts after its end; expected the indices of its "
            "first and its last word"
        )
    if first < 0 or last >= num_words:
        raise MentionError(
            f"the mention [{first}, {last}] is outside the document, which has {num_words} words "
            f"with the indices 0 to {num_words - 1}"
        )
    if sentence_of[first] != sentence_of[last]:
        raise MentionError(
            f"the mention [{first}, {last}] starts in the sentence {sentence_of[first]} and ends "
            f"in the sentence {sentence_of[last]}; a mention is inside a sentence. Correct it, or "
            "join the sentences",
            last,
        )
    return Mention(first, last)


def _json_lines(path: Path) -> Iterable[Document]:
    for number, line in numbered_lines(LineReader(path)):
        place = f"{path}, line {number}"
        record = json_record(line, place)
        sentences, clusters = fields_of(record, ("sentences", "clusters"), place)
        yield _document(record, _sentences(sentences, place), clusters, number, place)


def _document(
    record: dict[str, Any], sentences: Sentences, clusters: Any, number: int, place: str
) -> Document:
    if not isinstance(clusters, list) or not all(isinstance(c, list) for c in clusters):
        raise CorpusError(f"{place}: clusters is {clusters!r:.60}; expected a list of lists")
    for mention in itertools.chain.from_iterable(clusters):
        if not isinstance(mention, list) or len(mention) != 2:
            raise CorpusError(
                f"{place}: a mention is {mention!r:.60}; expected [first word, last word]"
            )
    try:
        checked = checked_clusters(clusters, sentences)
    except ValueError as e:
        raise CorpusError(f"{place}: {e}") from None
    name = record.get("doc", record.get("doc_key", f"line {number}"))
    genre = record.get("genre")
    for field, value in (("doc", name), ("genre", genre)):
        if value is not None and not isinstance(value, str):
            raise CorpusError(f"{place}: {field} is {value!r:.60}; expected a string")
        checked_text(value or "", f"{place}: {field}")
    speakers = _speakers(record.get("speakers"), sentences, place)
    return Document(name, sentences, checked, genre, speakers, number)


def _sentences(value: Any, place: str) -> Sentences:
    if not isinstance(value, list) or not value:
        raise CorpusError(
            f"{place}: sentences is {value!r:.60}; expected a list of sentences that is not empty"
        )
    sentences = []
    for i, words in enumerate(value):
        sentences.append(checked_words(words, f"{place}: sentence {i}"))
    return tuple(sentences)


def _speakers(value: Any, sentences: Sentences, place: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    lengths = [len(words) for words in sentences]
    is_list = isinstance(value, list) and all(isinstance(row, list) for row in value)
    if not is_list or [len(row) for row in value] != lengths:
        raise CorpusError(
            f"{place}: speakers does not have one list per sentence with one speaker per word"
        )
    speakers = tuple(itertools.chain.from_iterable(value))
    if not all(isinstance(speaker, str) for speaker in speakers):
        raise CorpusError(f"{place}: a speaker is not a string")
    checked_text("".join(speakers), f"{place}: a speaker")
    return speakers


def _conll(path: Path) -> Iterable[Document]:
    for found in read_conll2012(path):
        try:
            clusters = checked_clusters(
                found.clusters.values(), found.sentences, tuple(found.clusters)
            )
        except MentionError as e:
            line = found.line if e.word is None else found.lines[e.word]
            raise CorpusError(f"{path}, line {line}: {e}") from None
        genre = found.name.split("/")[0] if "/" in found.name else None
        yield Document(found.name, found.sentences, clusters, genre, found.speakers, found.line)
