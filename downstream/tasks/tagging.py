"""Tasks that tag sentences: named entities, chunks, parts of speech, and semantic roles.

The labels are those of the training split alone. The validation split, if it has no file, is the
last part of the different sentences of the training file. All examples of equal sentences are in
the same split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bilm.errors import CorpusError
from downstream.settings.tagging import SequenceDataSettings, SequenceSettings, TagSettings
from downstream.tasks.labels import unknown_label
from downstream.tasks.splits import SPLITS, first_for_validation, paths_of, too_few
from downstream.tasks.tag_scores import TagScores, score_tags
from downstream.texts.counts import counted
from downstream.texts.tag_sequences import ALL_SPANS, OUTSIDE, SpanRules, bio_labels, type_of
from downstream.texts.tagged import TaggedExample, TaggedFile, TagReading, read_tagged

if TYPE_CHECKING:
    from downstream.features.batches import Examples
    from downstream.features.tag_sources import TagTargets
    from downstream.heads.saved_head import HeadInputs
    from downstream.heads.tagger import TaggerDescription, TagPrediction
    from downstream.tasks.task import Features, Inputs


@dataclass(frozen=True)
class TagSplit:
    """A split: the name of its file, and its examples."""

    file: str
    examples: tuple[TaggedExample, ...]

    def __len__(self) -> int:
        return len(self.examples)


@dataclass(frozen=True)
class TaggingTask:
    """The files of a task by name, its labels, and its splits.

    `rules` are those of its scores.
    """

    files: dict[str, TaggedFile]
    labels: tuple[str, ...]
    is_bio: bool
    splits: dict[str, TagSplit]
    has_predicates: bool = False
    rules: SpanRules = ALL_SPANS

    def words(self, split: str, example: int) -> tuple[str, ...]:
        """Return the words of an example."""
        part = self.splits[split]
        return self.files[part.file].sentences[part.examples[example].sentence]

    def inputs(self, settings: SequenceSettings) -> Inputs:
        """Return the sentences of all files as words."""
        from downstream.features.texts_to_layers import UNLIMITED_WORDS, TextReading
        from downstream.tasks.task import Inputs

        texts = {name: file.sentences for name, file in self.files.items()}
        return Inputs(texts, TextReading(True, UNLIMITED_WORDS), "words")

    def examples(self, settings: SequenceSettings, features: Features) -> dict[str, Examples]:
        """Return the sentences and tags of each split."""
        from downstream.features.batches import Examples
        from downstream.features.plain_words import PlainWords
        from downstream.features.tag_sources import TagInputs, TagSource
        from downstream.features.word_ranges import WordRanges

        result = {}
        for name in SPLITS:
            split = self.splits[name]
            predicates = [example.predicate or 0 for example in split.examples]
            inputs = TagInputs(
                np.array([example.sentence for example in split.examples]),
                np.array(predicates) if self.has_predicates else None,
            )
            file, table = features.files[split.file], features.tables.get(split.file)
            has_characters = settings.head.reads_characters(not isinstance(file, PlainWords))
            source = TagSource(WordRanges(file, table, has_characters), inputs)
            result[name] = Examples(source, self._targets(split))
        return result

    def _targets(self, split: TagSplit) -> TagTargets:
        from downstream.features.tag_sources import TagTargets

        ids = {label: i for i, label in enumerate(self.labels)}
        tags = [example.tags for example in split.examples]
        rows = [np.array([ids.get(tag, 0) for tag in row], dtype=np.int64) for row in tags]
        return TagTargets(tags, rows)

    def describe(self, settings: SequenceSettings, inputs: HeadInputs) -> TaggerDescription:
        """Return the description of a tagger."""
        from downstream.heads.tagger import TaggerDescription

        return TaggerDescription(
            format="bilm-tagger",
            **inputs.fields(settings.mix),
            labels=self.labels,
            is_bio=self.is_bio,
            excluded=self.rules.excluded,
            has_predicates=self.has_predicates,
            predicate_words=self.predicate_words(),
            head=settings.head,
        )

    def score(self, targets: TagTargets, predictions: Sequence[TagPrediction]) -> TagScores:
        """Compare the predicted tags with the true ones."""
        predicted = [prediction.tags for prediction in predictions]
        return score_tags(targets.tags, predicted, self.is_bio, self.rules)

    def predicate_words(self) -> tuple[str, ...]:
        """Return the words that are predicates in at least half of their training occurrences.

        They are in lower case, and used to find predicates in raw text. Sentences without a
        predicate are in no split, and count as training sentences.
        """
        if not self.has_predicates:
            return ()
        train = self.splits["train"]
        sentences = self.files[train.file].sentences
        places = {(e.sentence, e.predicate) for e in train.examples if e.predicate is not None}
        as_predicate = Counter(sentences[i][k].lower() for i, k in places)
        validation = self.splits["validation"]
        held_out: set[int] = set()
        if validation.file == train.file:
            held_out = {example.sentence for example in validation.examples}
        in_training = (words for i, words in enumerate(sentences) if i not in held_out)
        total = Counter(word.lower() for words in in_training for word in words)
        return tuple(sorted(word for word, n in as_predicate.items() if 2 * n >= total[word]))

    def num_seen(self, split: str) -> int:
        """Return the number of sentences of a split that also occur in the training split."""
        train, other = self.splits["train"], self.splits[split]
        seen = {self.files[train.file].sentences[e.sentence] for e in train.examples}
        places = {example.sentence for example in other.examples}
        return sum(self.files[other.file].sentences[place] in seen for place in places)


def read_tagging(settings: TagSettings) -> TaggingTask:
    """Read and check all tagged sentences."""
    data = settings.data
    reading = TagReading(data.format, data.word_column, data.tag_column, data.scheme)
    files = {name: read_tagged(path, reading) for name, path in paths_of(data).items()}
    is_bio = reading.scheme_of(Path(data.train)) != "plain"
    return make_tagging(files, data, is_bio)


def make_tagging(
    files: dict[str, TaggedFile], data: SequenceDataSettings, is_bio: bool
) -> TaggingTask:
    """Find the labels and the splits, and reject labels that do not occur in training."""
    train = files["train"]
    splits = {name: TagSplit(name, file.examples) for name, file in files.items()}
    part = None
    if data.validation is None:
        sentences = _training_sentences(train, data.validation_share)
        splits |= split_off_validation(train, sentences)
        count = len({train.sentences[i] for i in sentences})
        part = f"the first {counted(count, 'different sentence')} of {train.path}"
    labels = labels_of(splits["train"].examples, is_bio)
    if len(labels) < 2:
        found = f"only one label, {labels[0]!r}" if labels else "no labels"
        raise CorpusError(
            f"{train.path} has {found}; at least two are needed. Check the column of tags"
        )
    if data.unknown_labels == "reject":
        for name in ("validation", "test"):
            file, examples = files[splits[name].file], splits[name].examples
            if (unknown := _first_unknown(examples, labels)) is not None:
                example, i = unknown
                raise unknown_label(file.place(example, i), example.tags[i], labels, part)
    return TaggingTask(files, labels, is_bio, {name: splits[name] for name in SPLITS})


def labels_of(examples: Sequence[TaggedExample], is_bio: bool) -> tuple[str, ...]:
    """Return the labels of the examples; for BIO, both B and I of every type."""
    tags = {tag for example in examples for tag in example.tags}
    if not is_bio:
        return tuple(sorted(tags))
    return bio_labels(sorted({type_of(tag) for tag in tags if tag != OUTSIDE}))


def split_off_validation(file: TaggedFile, sentences: Collection[int]) -> dict[str, TagSplit]:
    """Return the training split, which has the given sentences, and the validation split."""
    before = tuple(e for e in file.examples if e.sentence in sentences)
    after = tuple(e for e in file.examples if e.sentence not in sentences)
    if not before or not after:
        raise CorpusError(
            f"{file.path}: of its examples, {len(after)} are in the sentences for validation, "
            f"which are the last {len(file.sentences) - len(sentences)}, and {len(before)} in the "
            "others; pass --validation"
        )
    return {"train": TagSplit("train", before), "validation": TagSplit("train", after)}


def _training_sentences(file: TaggedFile, share: float) -> frozenset[int]:
    """Return the indices of the sentences that are not used for validation.

    Equal sentences count as one, at the place of the first of them, so that the validation split
    has no sentence that the training split has too.
    """
    places: dict[tuple[str, ...], int] = {}
    numbers = [places.setdefault(words, len(places)) for words in file.sentences]
    if len(places) < 2:
        raise too_few(file.path, len(file.sentences), "sentence")
    first = first_for_validation(len(places), share)
    return frozenset(i for i, number in enumerate(numbers) if number < first)


def _first_unknown(
    examples: Sequence[TaggedExample], labels: tuple[str, ...]
) -> tuple[TaggedExample, int] | None:
    """Return the first example with another label, and the place of the label in it."""
    known = set(labels)
    for example in examples:
        for i, tag in enumerate(example.tags):
            if tag not in known:
                return example, i
    return None
