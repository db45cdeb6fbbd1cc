"""The classification of pairs of texts, such as natural language inference and paraphrases.

The validation split, if it has no file, is a random share of the training pairs in which pairs with
the same first text stay together: a first text often has one pair per class.

The methods import torch; reading and checking the pairs does not.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bilm.errors import CorpusError
from downstream.settings.pairs import PairSettings
from downstream.tasks.classification import class_names
from downstream.tasks.labels import unknown_label
from downstream.tasks.scores import Scores, score
from downstream.tasks.splits import SPLITS, keeps_classes, members_of, paths_of
from downstream.tasks.text_task import Split
from downstream.texts.labelled import Ids
from downstream.texts.pairs import LabelledPairs, PairColumns, read_labelled_pairs

if TYPE_CHECKING:
    from downstream.features.batches import Examples
    from downstream.heads.class_outputs import Probabilities
    from downstream.heads.pair_model import PairDescription
    from downstream.heads.saved_head import HeadInputs
    from downstream.tasks.task import Features, Inputs


class Overlap(NamedTuple):
    """The numbers of test pairs that occur in the training split, and whose first text does."""

    num_pairs: int
    num_first_texts: int


@dataclass(frozen=True)
class PairTask:
    """The files of a task by name, its classes, and its splits.

    `labels` are the classes and then the labels that do not occur in training, if they are kept;
    the labels of a split are indices into it.
    """

    files: dict[str, LabelledPairs]
    classes: tuple[str, ...]
    labels: tuple[str, ...]
    splits: dict[str, Split]

    def inputs(self, settings: PairSettings) -> Inputs:
        """Return the distinct texts of each file."""
        from downstream.features.texts_to_layers import TextReading
        from downstream.tasks.task import Inputs

        texts = {name: file.pairs.texts for name, file in self.files.items()}
        reading = TextReading(settings.data.tokenized, settings.data.max_words)
        return Inputs(texts, reading, "words")

    def examples(self, settings: PairSettings, features: Features) -> dict[str, Examples]:
        """Return the pairs and labels of each split."""
        from downstream.features.batches import Examples
        from downstream.features.pair_source import PairSource
        from downstream.features.plain_words import PlainWords
        from downstream.features.word_ranges import WordRanges

        result = {}
        for name in SPLITS:
            split = self.splits[name]
            file, pairs = features.files[split.file], self.files[split.file].pairs
            has_characters = settings.head.reads_characters(not isinstance(file, PlainWords))
            texts = WordRanges(file, features.tables.get(split.file), has_characters)
            source = PairSource(texts, pairs.first[split.places], pairs.second[split.places])
            result[name] = Examples(source, split.labels)
        return result

    def describe(self, settings: PairSettings, inputs: HeadInputs) -> PairDescription:
        """Return the description of a pair classifier."""
        from downstream.heads.pair_model import PairDescription

        return PairDescription(
            format="bilm-pair-classifier",
            **inputs.fields(settings.mix),
            classes=self.classes,
            head=settings.head,
            tokenized=settings.data.tokenized,
            max_words=settings.data.max_words,
        )

    def score(self, labels: Ids, probabilities: Probabilities) -> Scores:
        """Compare the most probable classes with the labels."""
        return score(labels, probabilities.argmax(axis=1), self.labels)

    def overlap(self) -> Overlap:
        """Return how many test pairs, and how many of their first texts, occur in training."""
        train = [self._both("train", i) for i in range(len(self.splits["train"]))]
        test = [self._both("test", i) for i in range(len(self.splits["test"]))]
        pairs, first = set(train), {pair[0] for pair in train}
        return Overlap(sum(pair in pairs for pair in test), sum(pair[0] in first for pair in test))

    def _both(self, split: str, example: int) -> tuple[str, str]:
        part = self.splits[split]
        return self.files[part.file].both(part.places[example])


def read_pair_task(settings: PairSettings) -> PairTask:
    """Read and check all pairs."""
    data = settings.data
    columns = PairColumns(data.first_column, data.second_column, data.label_column)
    files = {
        name: read_labelled_pairs(path, columns, data.format, data.header)
        for name, path in paths_of(data).items()
    }
    classes = class_names(files["train"])
    labels = classes + _unknown_labels(files, classes, data.unknown_labels == "keep")
    ids = {label: i for i, label in enumerate(labels)}
    splits = {
        name: Split(name, np.arange(len(file)), np.array([ids[label] for label in file.labels]))
        for name, file in files.items()
    }
    if data.validation is None:
        whole, first = splits["train"], files["train"].pairs.first
        try:
            train, validation = split_pairs(
                first, whole.labels, data.validation_share, settings.train.seed
            )
        except CorpusError as e:
            raise CorpusError(f"{data.train}: {e}") from None
        splits |= {"train": whole.subset(train), "validation": whole.subset(validation)}
    return PairTask(files, classes, labels, {name: splits[name] for name in SPLITS})


def _unknown_labels(
    files: dict[str, LabelledPairs], classes: tuple[str, ...], keep: bool
) -> tuple[str, ...]:
    """Return the labels that do not occur in training; reject them unless `keep` is true."""
    unknown = set()
    for file in files.values():
        for i, label in enumerate(file.labels):
            if label in classes:
                continue
            if not keep:
                raise unknown_label(file.place(i), label, classes)
            unknown.add(label)
    return tuple(sorted(unknown))


def split_pairs(first: Ids, labels: Ids, share: float, seed: int) -> tuple[Ids, Ids]:
    """Return the sorted indices of the training and of the validation pairs.

    Pairs with the same first text are in the same part, and every class keeps a training pair. The
    first texts for validation are drawn with the seed until they have `share` of the pairs.
    """
    groups = members_of(first)
    shuffled = [groups[i] for i in np.random.default_rng(seed).permutation(len(groups))]
    left = Counter(labels.tolist())
    wanted = round(share * len(labels))
    chosen: list[Ids] = []
    for group in shuffled:
        if len(group) <= wanted and keeps_classes(labels[group], left):
            left -= Counter(labels[group].tolist())
            chosen.append(group)
            wanted -= len(group)
    if not chosen:  # every first text has more pairs than wanted, or all pairs of a class
        usable = [group for group in shuffled if keeps_classes(labels[group], left)]
        if not usable:
            raise CorpusError(
                "no first text can be used for validation, because each has all pairs of some "
                "class; add pairs, or pass --validation"
            )
        chosen.append(min(usable, key=len))
    validation = np.sort(np.concatenate(chosen))
    return np.setdiff1d(np.arange(len(labels)), validation), validation
