"""The classification task: its classes, the texts and labels of its splits, and its head.

The methods import torch; reading and checking the texts does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from bilm.errors import ConfigError, CorpusError
from downstream.settings.sections import BaselineSettings, Settings
from downstream.tasks.scores import Scores, score
from downstream.tasks.splits import SPLITS as SPLITS
from downstream.texts.labelled import Ids, LabelledTexts, read_labelled

if TYPE_CHECKING:
    from downstream.features.batches import Examples
    from downstream.heads.class_outputs import Probabilities
    from downstream.heads.saved_head import Description, HeadInputs
    from downstream.tasks.task import Features, Inputs


class Labelled(Protocol):
    """Examples with one label each, and the name of their file for error messages."""

    @property
    def labels(self) -> tuple[str, ...]: ...

    @property
    def source(self) -> str: ...


@dataclass(frozen=True)
class Split:
    """A split: the name of its file, the indices of its texts in that file, and their labels."""

    file: str
    places: Ids
    labels: Ids

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, indices: Ids) -> Split:
        """Return the split with only the texts at `indices`."""
        return Split(self.file, self.places[indices], self.labels[indices])


@dataclass(frozen=True)
class Task:
    """The labelled files of a task by name, its classes, and its splits."""

    files: dict[str, LabelledTexts]
    classes: tuple[str, ...]
    splits: dict[str, Split]

    def texts(self, split: str) -> list[str]:
        """Return the texts of a split."""
        texts = self.files[self.splits[split].file].texts
        return [texts[i] for i in self.splits[split].places]

    def inputs(self, settings: Settings) -> Inputs:
        """Return the texts of all files."""
        from downstream.features.texts_to_layers import TextReading
        from downstream.tasks.task import Inputs

        texts = {name: file.texts for name, file in self.files.items()}
        reading = TextReading(settings.data.tokenized, settings.data.max_words)
        return Inputs(texts, reading, settings.head.mode)

    def examples(self, settings: Settings, features: Features) -> dict[str, Examples]:
        """Return the texts and labels of each split."""
        from downstream.features.batches import Examples, Subset, make_source

        sources = {
            name: make_source(file, settings.head.kind, features.tables.get(name))
            for name, file in features.files.items()
        }
        return {
            name: Examples(Subset(sources[split.file], split.places), split.labels)
            for name, split in self.splits.items()
        }

    def describe(self, settings: Settings, inputs: HeadInputs) -> Description:
        """Return the description of a classifier."""
        from downstream.heads.saved_head import Description

        if inputs.bilm is None:
            raise ConfigError("classification needs a biLM; set --model")
        return Description(
            format="bilm-classifier",
            **inputs.fields(settings.mix),
            classes=self.classes,
            head=settings.head,
            tokenized=settings.data.tokenized,
            max_words=settings.data.max_words,
        )

    def score(self, labels: Ids, probabilities: Probabilities) -> Scores:
        """Compare the most probable classes with the labels."""
        return score(labels, probabilities.argmax(axis=1), self.classes)


def read_task(settings: BaselineSettings) -> Task:
    """Read and check all labelled texts."""
    data = settings.data
    paths = {"train": data.train, "test": data.test}
    if data.validation is not None:
        paths["validation"] = data.validation
    files = {
        name: read_labelled(
            path,
            label_column=data.label_column,
            text_columns=data.text_columns,
            file_format=data.format,
            header=data.header,
        )
        for name, path in paths.items()
    }
    classes = class_names(files["train"])
    whole = {
        name: Split(name, np.arange(len(texts)), label_ids(texts, classes))
        for name, texts in files.items()
    }
    if data.validation is not None:
        return Task(files, classes, {split: whole[split] for split in SPLITS})
    train, validation = split_validation(
        whole["train"].labels, data.validation_share, settings.train.seed
    )
    splits = {
        "train": whole["train"].subset(train),
        "validation": whole["train"].subset(validation),
        "test": whole["test"],
    }
    return Task(files, classes, splits)


def class_names(data: Labelled) -> tuple[str, ...]:
    """Return the distinct labels, sorted as numbers if all are numbers; reject fewer than two."""
    names = set(data.labels)
    if len(names) < 2:
        raise CorpusError(
            f"{data.source} has only one class ({data.labels[0]!r}); at least two are needed. "
            "Check the label column"
        )
    if all(name.isascii() and name.isdecimal() for name in names):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))


def label_ids(data: LabelledTexts, classes: Sequence[str]) -> Ids:
    """Return each label as its index in `classes`; raise CorpusError for an unknown label."""
    places = {name: i for i, name in enumerate(classes)}
    unknown = Counter(label for label in data.labels if label not in places)
    if unknown:
        shown = ", ".join(f"{label!r} ({n:,} times)" for label, n in unknown.most_common(5))
        raise CorpusError(
            f"{data.source} has labels that do not occur in the training texts: {shown}; the known "
            f"labels are {', '.join(map(repr, classes[:20]))}. Remove these rows, or add training "
            "texts of these classes"
        )
    return np.array([places[label] for label in data.labels], dtype=np.int64)


def split_validation(labels: Ids, share: float, seed: int) -> tuple[Ids, Ids]:
    """Return the sorted indices of training and validation texts, `share` of each class.

    The same labels, share and seed give the same split. A class with one text stays in training.
    """
    if not 0 < share < 1:
        raise ConfigError(f"the validation share is {share}; it must be between 0 and 1")
    rng = np.random.default_rng(seed)
    chosen = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        count = min(len(members) - 1, max(1, round(share * len(members))))
        chosen.append(rng.permutation(members)[:count])
    validation = np.sort(np.concatenate(chosen))
    if not len(validation):
        raise CorpusError("every class has only one text, so none can be used for validation")
    return np.setdiff1d(np.arange(len(labels)), validation), validation
