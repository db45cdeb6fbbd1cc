"""The classification task: its classes, the texts and labels of its splits, and its head.

The methods import torch; reading and checking the texts does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from bilm.errors import CorpusError
from downstream.settings.sections import BaselineSettings, Settings
from downstream.tasks.labels import unknown_label
from downstream.tasks.scores import Scores, score
from downstream.tasks.text_task import (
    Split,
    TextTask,
    make_splits,
    read_files,
    sorted_names,
    text_columns,
)
from downstream.texts.labelled import Ids, LabelledTexts, Placed, read_labelled

if TYPE_CHECKING:
    from downstream.heads.class_outputs import Probabilities
    from downstream.heads.saved_head import Description, HeadInputs


class Labelled(Protocol):
    """Examples with one label each, and the name of their file for error messages."""

    @property
    def labels(self) -> tuple[str, ...]: ...

    @property
    def source(self) -> str: ...


@dataclass(frozen=True)
class Task(TextTask):
    """The labelled files of a task by name, its classes, and its splits."""

    files: dict[str, LabelledTexts]
    classes: tuple[str, ...]
    splits: dict[str, Split]

    def describe(self, settings: Settings, inputs: HeadInputs) -> Description:
        """Return the description of a classifier."""
        from downstream.heads.text_targets import TargetRecord

        return self.describe_head(settings, inputs, self.classes, TargetRecord())

    def score(self, labels: Ids, probabilities: Probabilities) -> Scores:
        """Compare the most probable classes with the labels."""
        return score(labels, probabilities.argmax(axis=1), self.classes)


def read_task(settings: BaselineSettings) -> Task:
    """Read and check all labelled texts."""
    settings.reject_other_targets()
    columns = text_columns(settings.data)
    files = read_files(settings.data, lambda path: read_labelled(path, **vars(columns)))
    classes = class_names(files["train"])
    labels = {name: label_ids(texts, classes) for name, texts in files.items()}
    return Task(files, classes, make_splits(files, labels, labels["train"], settings))


def class_names(data: Labelled) -> tuple[str, ...]:
    """Return the distinct labels, sorted as numbers if all are numbers; reject fewer than two."""
    names = set(data.labels)
    if len(names) < 2:
        raise CorpusError(
            f"{data.source} has only one class ({data.labels[0]!r}); at least two are needed. "
            "Check the label column"
        )
    return sorted_names(names)


def label_ids(data: LabelledTexts, classes: Sequence[str]) -> Ids:
    """Return each label as its index in `classes`; raise CorpusError for an unknown label."""
    check_known([(label,) for label in data.labels], classes, data)
    places = {name: i for i, name in enumerate(classes)}
    return np.array([places[label] for label in data.labels], dtype=np.int64)


def check_known(labels: Iterable[Iterable[str]], known: Sequence[str], data: Placed) -> None:
    """Raise CorpusError if a label does not occur in the training texts.

    `labels` are those of each text of `data`.
    """
    names = set(known)
    for text, of_text in enumerate(labels):
        for label in of_text:
            if label not in names:
                raise unknown_label(
                    data.place(text),
                    label,
                    known,
                    remedy="remove the text, or add training texts with it",
                )
