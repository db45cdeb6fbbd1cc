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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

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
from downstream.predictors.predictor import WINDOW_WORDS, WordPredictor
from downstream.texts.clusters import Clusters
from downstream.texts.offsets import Range, word_ranges
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
    """The words of each sentence of a text, and the range of characters of each word."""

    sentences: list[list[str]]
    ranges: list[Range]


class _Item(NamedTuple):
    """A tokenized document, its genre, and the speaker of each word."""

    sentences: Words
    genre: str | None
    speakers: Sequence[str] | None


class CoreferenceResolver(WordPredictor[CorefDescription]):
    """A coreference resolver of raw documents."""

    @classmethod
    def _read_description(cls, directory: Path) -> CorefDescription:
        return CorefDescription.read(directory)

    def predict(self, texts: Sequence[str]) -> list[ResolvedText]:
        """Return the clusters of each document, with character offsets."""
        if isinstance(texts, str):
            raise TypeError("predict takes a list of documents; for one document, pass [text]")
        split = self._splitter()
        documents = []
        for i, text in enumerate(texts):
            document = _split(text, split)
            if not document.sentences:
                raise CorpusError(f"document {i + 1} of {len(texts)} has no words; remove it")
            documents.append(document)
        predicted = self.predict_words([document.sentences for document in documents])
        return [
            _resolved(text, document.ranges, clusters)
            for text, document, clusters in zip(texts, documents, predicted, strict=True)
        ]

    def predict_words(
        self,
        documents: Sequence[Words],
        *,
        genres: Sequence[str | None] | None = None,
        speakers: Sequence[Sequence[str] | None] | None = None,
    ) -> list[Clusters]:
        """Return the clusters of tokenized documents, each a list of sentences.

        A mention is the index of its first and of its last word among all words of the document.

        Args:
            documents: the words of each sentence of each document.
            genres: the genre of each document; one that was not in the training file is unknown.
            speakers: the speaker of each word of each document.
        """
        for i, sentences in enumerate(documents):
            if not sentences or any(isinstance(s, str) or not s for s in sentences):
                raise CorpusError(
                    f"document {i + 1} of {len(documents)} is not a list of sentences, which are "
                    "lists of words that are not empty"
                )
        unknown = [None] * len(documents)
        parts = (documents, genres or unknown, speakers or unknown)
        items = [_Item(*item) for item in zip(*parts, strict=True)]
        for i, item in enumerate(items):
            num_words = sum(map(len, item.sentences))
            if item.speakers is not None and len(item.speakers) != num_words:
                raise CorpusError(
                    f"document {i + 1} of {len(items)} has {num_words} words and "
                    f"{len(item.speakers)} speakers; there must be one speaker per word"
                )
        return self._clusters(items)

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


def _renumbered(chosen: Sequence[Window]) -> list[Window]:
    """Return windows whose sentences are the only texts of a file, one window after another."""
    result, first = [], 0
    for window in chosen:
        result.append(replace(window, sentences=range(first, first + len(window.sentences))))
        first += len(window.sentences)
    return result


def _split(text: str, split: Callable[[str], list[str]]) -> _Split:
    """Split a document into sentences and words; sentences without words are left out."""
    sentences, ranges, position = [], [], 0
    for sentence in split_sentences(text):
        start = text.index(sentence, position)
        position = start + len(sentence)
        words = split(sentence)
        if words:
            sentences.append(words)
            ranges += [Range(start + a, start + b) for a, b in word_ranges(sentence, words)]
    return _Split(sentences, ranges)


def _resolved(text: str, ranges: Sequence[Range], clusters: Clusters) -> ResolvedText:
    result = []
    for cluster in clusters:
        mentions = []
        for first, last in cluster:
            start, end = ranges[first].start, ranges[last].end
            mentions.append(TextMention(start, end, text[start:end]))
        result.append(tuple(mentions))
    return ResolvedText(tuple(result))
