"""`Tagger` and `RoleLabeler`: trained heads that tag raw text, with character offsets.

On disk, each consists of `tagger.json` and `head.safetensors`. The biLM and the word vectors are
not copied: their paths and digests are recorded, and other files are rejected. Raw text is split by
the tokenizer of the biLM; without a biLM, words are separated by white space. A list of words is
not tokenized. A text is one sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np

from bilm.embedding.sentence_batches import windows
from bilm.errors import CheckpointError, CorpusError
from downstream.features.tag_sources import TagInputs, TagSource
from downstream.heads.tagger import TaggerDescription, TagPrediction
from downstream.predictors.inputs import check_count, checked_words, listed
from downstream.predictors.predictor import (
    WINDOW_WORDS,
    AnyText,
    SplitText,
    WordPredictor,
    checked_content,
    name_of,
)
from downstream.settings.tagging import TAGGER_FILE
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

    _file = TAGGER_FILE
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

    def _split(self, texts: Iterable[AnyText], names: Sequence[str] | None) -> list[SplitText]:
        given = listed(texts, "text")
        places = [name_of(names, "text", i, len(given)) for i in range(len(given))]
        contents = [checked_content(*item) for item in zip(given, places, strict=True)]
        needs_tokenizer = any(isinstance(content, str) for content in contents)
        split = self._splitter() if needs_tokenizer else str.split
        result = [SplitText.of(content, split) for content in contents]
        for one, place in zip(result, places, strict=True):
            if not one.words:
                raise CorpusError(f"{place} has no words; remove it")
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
        self, texts: Iterable[AnyText], *, names: Sequence[str] | None = None
    ) -> list[TaggedText]:
        """Return the tags and spans of each text, with character offsets.

        Args:
            texts: the texts; one that is a list of words is not tokenized, and its offsets are
                those in the words separated by spaces.
            names: the names of the texts in errors, such as their files and lines.
        """
        split = self._split(texts, names)
        predicted = self._tag([_Item(one.words) for one in split])
        return [self._tagged(one, p.tags) for one, p in zip(split, predicted, strict=True)]

    def predict_words(self, sentences: Iterable[Iterable[str]]) -> list[tuple[str, ...]]:
        """Return the tag of each word of tokenized sentences."""
        items = [_Item(words) for words in _checked_sentences(sentences)]
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
        self, texts: Iterable[AnyText], *, names: Sequence[str] | None = None
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
        frames: list[list[RoleFrame]] = [[] for _ in split]
        for i, item, prediction in zip(owners, items, self._tag(items), strict=True):
            frames[i].append(_frame(split[i], item.predicate, prediction.tags))
        return frames

    @overload
    def predict_words(
        self, sentences: Iterable[Iterable[str]], predicates: Iterable[int]
    ) -> list[tuple[str, ...]]: ...

    @overload
    def predict_words(
        self, sentences: Iterable[Iterable[str]], predicates: Iterable[Iterable[int]]
    ) -> list[list[tuple[str, ...]]]: ...

    def predict_words(self, sentences: Iterable[Iterable[str]], predicates: Any) -> Any:
        """Return the tags of tokenized sentences.

        Args:
            sentences: the words of each sentence.
            predicates: the index of the predicate of each sentence, from 0; or a list of indices
                per sentence, which gives a list of tags per sentence, one for each index.
        """
        texts, given = _checked_sentences(sentences), listed(predicates, "predicate")
        check_count(given, "predicates", len(texts), "sentences")
        num_single = sum(isinstance(one, int | np.integer) for one in given)
        if 0 < num_single < len(given):
            raise TypeError(
                f"{num_single} of {len(given)} predicates are integers, and the others are not; "
                "pass an index for each sentence, or a list of indices for each"
            )
        rows = [[one] if num_single else listed(one, "predicate") for one in given]
        items = [
            _Item(words, _checked_predicate(index, words, f"sentence {i + 1} of {len(texts)}"))
            for i, (words, row) in enumerate(zip(texts, rows, strict=True))
            for index in row
        ]
        tags = (prediction.tags for prediction in self._tag(items))
        nested = [[next(tags) for _ in row] for row in rows]
        return [row[0] for row in nested] if num_single else nested


def _checked_sentences(sentences: Iterable[Iterable[str]]) -> list[list[str]]:
    given = listed(sentences, "sentence")
    return [
        checked_words(words, f"sentence {i + 1} of {len(given)}") for i, words in enumerate(given)
    ]


def _checked_predicate(index: object, words: list[str], name: str) -> int:
    """Return the index of a predicate among the words of the named sentence."""
    if not isinstance(index, int | np.integer) or isinstance(index, bool):
        raise TypeError(f"a predicate of {name} is {index!r:.60}; expected the index of a word")
    if not 0 <= index < len(words):
        raise CorpusError(
            f"{name} has no word {index}; a predicate is an index from 0 into a list of words"
        )
    return int(index)


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
