"""downstream/tasks/classification."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bilm.errors import ConfigError, CorpusError
from downstream.settings.sections import Settings
from downstream.texts.labelled import Ids, LabelledTexts, read_labelled


def class_names(data: LabelledTexts) -> tuple[str, ...]:
    """The distinct labels, by number if all are numbers, else by alphabet; at least two."""
    names = set(data.labels)
    if len(names) < 2:
        raise CorpusError(
            f"{data.source} has one class only ({data.labels[0]!r}); at least two are needed to "
            "tell apart: is the label column the right one?"
        )
    if all(name.isascii() and name.isdecimal() for name in names):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))


def label_ids(data: LabelledTexts, classes: Sequence[str]) -> Ids:
    """Each label as its place in `classes`; one that training never saw is an error."""
    places = {name: i for i, name in enumerate(classes)}
    strangers = Counter(label for label in data.labels if label not in places)
    if strangers:
        found = ", ".join(f"{label!r} ({n:,} times)" for label, n in strangers.most_common(5))
        raise CorpusError(
            f"{data.source} has labels that the training texts do not have: {found}; the known "
            f"ones are {', '.join(map(repr, classes[:20]))}: remove these rows, or add training "
            "texts of their class"
        )
    return np.array([places[label] for label in data.labels], dtype=np.int64)


def split_validation(labels: Ids, share: float, seed: int) -> tuple[Ids, Ids]:
    """Indices to train on and to validate on, `share` of each class, in rising order.

    The same labels, share and seed give the same split. A class of one text stays in training.
    """
    if not 0 < share < 1:
        raise ConfigError(f"the share held out for validation is {share}; it must be in (0, 1)")
    rng = np.random.default_rng(seed)
    chosen = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        count = min(len(members) - 1, max(1, round(share * len(members))))
        chosen.append(rng.permutation(members)[:count])
    validation = np.sort(np.concatenate(chosen))
    if not len(validation):
        raise CorpusError("every class has one text only, so none can be held out for validation")
    return np.setdiff1d(np.arange(len(labels)), validation), validation


SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Task:
    """The texts of a run by file, its classes, and which texts of which file make each split."""

    files: dict[str, LabelledTexts]
    classes: tuple[str, ...]
    indices: dict[str, tuple[str, Ids]]  # split -> its file, and the places there
    labels: dict[str, Ids]


def read_task(settings: Settings) -> Task:
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
    ids = {name: label_ids(texts, classes) for name, texts in files.items()}
    indices = {name: (name, np.arange(len(texts))) for name, texts in files.items()}
    if data.validation is None:
        train, validation = split_validation(
            ids["train"], data.validation_share, settings.train.seed
        )
        indices |= {"train": ("train", train), "validation": ("train", validation)}
    labels = {split: ids[indices[split][0]][indices[split][1]] for split in SPLITS}
    return Task(files, classes, indices, labels)
