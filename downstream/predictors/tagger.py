"""`Tagger` and `RoleLabeler`: trained heads that tag raw text, with character offsets.

On disk, each consists of `tagger.json` and `head.safetensors`. The biLM and the word vectors are
not copied: their paths and digests are recorded, and other files are rejected. Raw text is split by
the tokenizer of the biLM; without a biLM, words are separated by white space. A list of words is
not tokenized. A text is one sentence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bilm.embedding.sentence_batches import windows
from bilm.errors import CheckpointError, CorpusError
from downstream.features.tag_sources import TagInputs, TagSource
from downstream.heads.tagger import TaggerDescription, TagPrediction
from downstream.predictors.predictor import (
    WINDOW_WORDS,
    AnyText,
    SplitText,
    WordPredictor,
    name_of,
)
from downstream.texts.offsets import range_of_words
from downstream.texts.tag_sequences import spans_of
from downstream.training.fit import predict


@dataclass(frozen=True)
class TaggedWord:
    """A word of a text, its range of characters, and its tag."""

    word: str
    start: int
    end: int
    tag: str


@dataclass(frozen=True)
class TextSpan:
    """A typed range of characters of a text."""

    type: str
    start: int
    end: int
    text: str


@dataclass(frozen=True)
class TaggedText:
    """The words of a text with their tags, and its spans; plain tags have no spans."""

    words: tuple[TaggedWord, ...]
    spans: tuple[TextSpan, ...]


@dataclass(frozen=True)
class RoleFrame:
    """A predicate of a text, and its arguments."""

    predicate: TextSpan
    arguments: tuple[TextSpan, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True)
class _Item:
    """A sentence to tag, and the index of its predicate."""

    words: list[str]
    predicate: int = 0


class _TaggingHead(WordPredictor[TaggerDescription]):
    """The parts that `Tagger` and `RoleLabeler` share."""

    _has_predicates = False
    _other = "downstream.RoleLabeler"

    @classmethod
    def _read_description(cls, directory: Path) -> TaggerDescription:
        description = TaggerDescription.read(directory)
        if description.has_predicates != cls._has_predicates:
            raise CheckpointError(
                f"{directory} was not trained for {cls.__name__}; use {cls._other}"
            )
        return description

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the tagger."""
        return self.description.labels

    def _split(self, texts: Sequence[AnyText], names: Sequence[str] | None) -> list[SplitText]:
        if isinstance(texts, str):
            raise TypeError("predict takes a list of texts; for one text, pass [text]")
        needs_tokenizer = any(isinstance(text, str) for text in texts)
        split = self._splitter() if needs_tokenizer else str.split
        result = [SplitText.of(text, split) for text in texts]
        for i, one in enumerate(result):
            if not one.words:
                name = name_of(names, "text", i, len(texts))
                raise CorpusError(f"{name} has no words; remove it")
        return result

    def _tag(self, items: Sequence[_Item]) -> Iterator[TagPrediction]:
        """Yield the prediction for each item; memory is bounded by a window of words."""
        done = 0
        for window in windows([item.words for item in items], WINDOW_WORDS):
            part = items[done : done + len(window)]
            done += len(window)
            source = self._source(part)
            embedder = self._inputs.embedder
            if embedder is not None and embedder.limits.batch_invariant:
                yield from predict(self._model, source, batch_size=1)
            else:
                yield from predict(self._model, source)

    def _source(self, items: Sequence[_Item]) -> TagSource:
        words = self._read([item.words for item in items])
        predicates = np.array([item.predicate for item in items])
        inputs = TagInputs(np.arange(len(items)), predicates if self._has_predicates else None)
        return TagSource(words, inputs)


class Tagger(_TaggingHead):
    """A tagger of raw texts: named entities, chunks or parts of speech."""

    def predict(
        self, texts: Sequence[AnyText], *, names: Sequence[str] | None = None
    ) -> list[TaggedText]:
        """Return the tags and spans of each text, with character offsets.

        Args:
            texts: the texts; one that is a list of words is not tokenized, and its offsets are
                those in the words separated by spaces.
            names: the names of the texts in errors, such as their files and lines.
        """
        split = self._split(texts, names)
        predicted = self.predict_words([one.words for one in split])
        return [self._tagged(one, tags) for one, tags in zip(split, predicted, strict=True)]

    def predict_words(self, sentences: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
        """Return the tag of each word of tokenized sentences."""
        for i, words in enumerate(sentences):
            if isinstance(words, str) or not words:
                raise CorpusError(f"sentence {i + 1} of {len(sentences)} is not a list of words")
        items = [_Item(list(words)) for words in sentences]
        return [prediction.tags for prediction in self._tag(items)]

    def _tagged(self, one: SplitText, tags: Sequence[str]) -> TaggedText:
        spans = _text_spans(one, tags) if self.description.is_bio else ()
        return TaggedText(
            tuple(
                TaggedWord(one.text[start:end] or word, start, end, tag)
                for word, (start, end), tag in zip(one.words, one.ranges, tags, strict=True)
            ),
            spans,
        )


class RoleLabeler(_TaggingHead):
    """A semantic role labeler of raw texts."""

    _has_predicates = True
    _other = "downstream.Tagger"

    def predict(
        self, texts: Sequence[AnyText], *, names: Sequence[str] | None = None
    ) -> list[list[RoleFrame]]:
        """Return the frames of each text, with character offsets.

        A word is a predicate if it was one in at least half of its occurrences in training. The
        arguments are those of `Tagger.predict`.
        """
        split = self._split(texts, names)
        known = set(self.description.predicate_words)
        items, owners = [], []
        for i, one in enumerate(split):
            for k, (word, (start, end)) in enumerate(zip(one.words, one.ranges, strict=True)):
                if word.lower() in known and start < end:
                    items.append(_Item(one.words, k))
                    owners.append(i)
        frames: list[list[RoleFrame]] = [[] for _ in texts]
        for i, item, prediction in zip(owners, items, self._tag(items), strict=True):
            frames[i].append(_frame(split[i], item.predicate, prediction.tags))
        return frames

    def predict_words(
        self, sentences: Sequence[Sequence[str]], predicates: Sequence[int]
    ) -> list[tuple[str, ...]]:
        """Return the tags of tokenized sentences, each with the index of its predicate."""
        items = []
        for i, (words, predicate) in enumerate(zip(sentences, predicates, strict=True)):
            if isinstance(words, str) or not 0 <= predicate < len(words):
                raise CorpusError(
                    f"sentence {i + 1} of {len(sentences)} has no word {predicate}; a predicate is "
                    "an index from 0 into a list of words"
                )
            items.append(_Item(list(words), predicate))
        return [prediction.tags for prediction in self._tag(items)]


def _frame(one: SplitText, predicate: int, tags: tuple[str, ...]) -> RoleFrame:
    start, end = one.ranges[predicate]
    arguments = [span for span in _text_spans(one, tags) if span.type != "V"]
    return RoleFrame(TextSpan("V", start, end, one.text[start:end]), tuple(arguments), tags)


def _text_spans(one: SplitText, tags: Sequence[str]) -> tuple[TextSpan, ...]:
    """Return the spans of a text; spans of words that the text does not contain are left out."""
    result = []
    for span in spans_of(tags):
        start, end = range_of_words(one.text, one.ranges[span.start : span.end])
        if start < end:
            result.append(TextSpan(span.type, start, end, one.text[start:end]))
    return tuple(result)
