"""`CoreferenceResolver`: a trained head that finds the clusters of raw documents, with offsets.

On disk, it consists of `coref.json` and `head.safetensors`. The biLM and the word vectors are not
copied: their paths and digests are recorded, and other files are rejected. Raw text is split into
sentences by rules (`bilm/text/sentences.py`), and into words by the tokenizer of the biLM; without
a biLM, words are separated by white space.

Cost: documents are read in windows of `window_words` words (`bilm tasks coref --window-words`), so
memory does not grow with the length of a document, except for its words and clusters.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from bilm.embedding.sentence_batches import windows
from bilm.errors import CorpusError
from bilm.text.sentences import split_sentences
from downstream.features.document_source import (
    ClusterTargets,
    DocumentInputs,
    DocumentSource,
    Window,
    genre_ids,
    speaker_ids,
    windows_of,
)
from downstream.heads.coreference import CorefDescription
from downstream.predictors.inputs import (
    check_count,
    checked_document,
    checked_string,
    listed,
)
from downstream.predictors.predictor import (
    WINDOW_WORDS,
    AnyText,
    SplitText,
    WordPredictor,
    checked_content,
    name_of,
)
from downstream.settings.coreference import COREF_FILE
from downstream.texts.clusters import Clusters
from downstream.texts.offsets import Range, range_of_words
from downstream.texts.passage_words import PassageWords
from downstream.training.fit import predict

Words = Sequence[Sequence[str]]  # the words of each sentence of a document


@dataclass(frozen=True)
class TextMention:
    """A mention: a range of characters of a document."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class ResolvedText:
    """The clusters of a document, in the order of their first mentions."""

    clusters: tuple[tuple[TextMention, ...], ...]


@dataclass(frozen=True)
class _Split:
    """A text, the words of each sentence, and the range of characters of each word."""

    text: str
    sentences: list[list[str]]
    ranges: list[Range]


class _Item(NamedTuple):
    """A tokenized document, its genre, and the speaker of each word."""

    sentences: Words
    genre: str | None
    speakers: Sequence[str] | None


class CoreferenceResolver(WordPredictor[CorefDescription]):
    """A coreference resolver of raw documents."""

    _file = COREF_FILE

    @classmethod
    def _read_description(cls, directory: Path) -> CorefDescription:
        return CorefDescription.read(directory)

    def predict(
        self, texts: Iterable[AnyText], *, names: Sequence[str] | None = None
    ) -> list[ResolvedText]:
        """Return the clusters of each document, with character offsets.

        Args:
            texts: the documents. One that is a list of words is not tokenized, and a sentence ends
                after a word that is a full stop, a question mark or an exclamation mark; its
                offsets are those in the words separated by spaces.
            names: the names of the documents in errors, such as their files and lines.
        """
        given = listed(texts, "document")
        documents = []
        for i, text in enumerate(given):
            name = name_of(names, "document", i, len(given))
            documents.append(self._split(checked_content(text, name)))
            if not documents[-1].sentences:
                raise CorpusError(f"{name} has no words; remove it")
        predicted = self._clusters([_Item(d.sentences, None, None) for d in documents])
        return [
            _resolved(document, clusters)
            for document, clusters in zip(documents, predicted, strict=True)
        ]

    def _split(self, content: str | list[str]) -> _Split:
        """Split a document into sentences and words; sentences without words are left out."""
        if not isinstance(content, str):
            words = SplitText.of(content, str.split)
            passage = PassageWords.of(words.text, words.words, words.ranges)
            return _Split(words.text, [list(s) for s in passage.sentences()], words.ranges)
        split = self._splitter()
        sentences, ranges, position = [], list[Range](), 0
        for sentence in split_sentences(content):
            start = content.index(sentence, position)
            position = start + len(sentence)
            part = SplitText.of(sentence, split)
            if part.words:
                sentences.append(part.words)
                ranges += [Range(start + a, start + b) for a, b in part.ranges]
        return _Split(content, sentences, ranges)

    def predict_words(
        self,
        documents: Iterable[Iterable[Iterable[str]]],
        *,
        genres: Iterable[str | None] | None = None,
        speakers: Iterable[Iterable[str] | None] | None = None,
    ) -> list[Clusters]:
        """Return the clusters of tokenized documents, each a list of sentences.

        A mention is the index of its first and of its last word among all words of the document.

        Args:
            documents: the words of each sentence of each document.
            genres: the genre of each document; one that was not in the training file is unknown.
            speakers: the speaker of each word of each document.
        """
        given = listed(documents, "document")
        names = [f"document {i + 1} of {len(given)}" for i in range(len(given))]
        unknown = [None] * len(given)
        genres = unknown if genres is None else listed(genres, "genre")
        check_count(genres, "genres", len(given), "documents")
        speakers = unknown if speakers is None else listed(speakers, "list of speaker")
        check_count(speakers, "lists of speakers", len(given), "documents")
        parts = zip(given, genres, speakers, names, strict=True)
        return self._clusters([_checked_item(*part) for part in parts])

    def _clusters(self, items: Sequence[_Item]) -> list[Clusters]:
        """Return the clusters of each document; some of their windows are in memory at a time."""
        inputs = self._inputs_of(items)
        sentences = [words for item in items for words in item.sentences]
        predicted: list[Clusters] = []
        for group in windows([window.words for window in inputs.windows], WINDOW_WORDS):
            chosen = inputs.windows[len(predicted) : len(predicted) + len(group)]
            words = self._read([sentences[i] for window in chosen for i in window.sentences])
            source = DocumentSource(words, replace(inputs, windows=_renumbered(chosen)))
            predicted += [prediction.clusters for prediction in predict(self._model, source)]
        return ClusterTargets([()] * len(items), inputs.windows).join(predicted)

    def _inputs_of(self, items: Sequence[_Item]) -> DocumentInputs:
        lengths = [[len(words) for words in item.sentences] for item in items]
        firsts = list(itertools.accumulate((len(sizes) for sizes in lengths), initial=0))[:-1]
        speakers = None
        if self.description.has_speakers:
            pairs = zip(items, lengths, strict=True)
            speakers = [speaker_ids(item.speakers, sum(sizes)) for item, sizes in pairs]
        return DocumentInputs(
            windows_of(lengths, firsts, self.description.window_words, overlap=True),
            genre_ids([item.genre for item in items], self.description.genres),
            speakers,
        )


def _checked_item(sentences: Any, genre: Any, speakers: Any, name: str) -> _Item:
    """Return a tokenized document, whose name in errors is given."""
    words = checked_document(sentences, name)
    if genre is not None:
        checked_string(genre, f"{name}: the genre")
    if speakers is None:
        return _Item(words, genre, None)
    own = [checked_string(one, f"{name}: a speaker") for one in listed(speakers, "speaker")]
    num_words = sum(map(len, words))
    if len(own) != num_words:
        raise CorpusError(
            f"{name} has {num_words} words and {len(own)} speakers; there must be one speaker per "
            "word"
        )
    return _Item(words, genre, own)


def _renumbered(chosen: Sequence[Window]) -> list[Window]:
    """Return windows whose sentences are the only texts of a file, one window after another."""
    result, first = [], 0
    for window in chosen:
        result.append(replace(window, sentences=range(first, first + len(window.sentences))))
        first += len(window.sentences)
    return result


def _resolved(document: _Split, clusters: Clusters) -> ResolvedText:
    """Return the clusters; mentions of words that the text does not contain are left out."""
    text, result = document.text, []
    for cluster in clusters:
        ranges = [range_of_words(text, document.ranges[a : b + 1]) for a, b in cluster]
        mentions = [TextMention(a, b, text[a:b]) for a, b in ranges if a < b]
        if mentions:
            result.append(tuple(mentions))
    return ResolvedText(tuple(result))
