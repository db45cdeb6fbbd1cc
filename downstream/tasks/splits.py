"""The names of the splits of a task, their files, and the part that is used for validation.

Examples that share a text form a group, which is never divided between training and validation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Protocol

import numpy as np

from bilm.errors import CorpusError
from downstream.texts.labelled import Ids

SPLITS = ("train", "validation", "test")


class SplitFiles(Protocol):
    """Settings that contain the paths of the splits."""

    @property
    def train(self) -> str: ...

    @property
    def test(self) -> str: ...

    @property
    def validation(self) -> str | None: ...


def paths_of(data: SplitFiles) -> dict[str, str]:
    """Return the path of each file by its name."""
    paths = {"train": data.train, "test": data.test}
    return paths if data.validation is None else {**paths, "validation": data.validation}


def first_for_validation(num_texts: int, share: float) -> int:
    """Return the index of the first text that is used for validation; the last `share` of them is.

    There must be at least two texts. Each part has at least one.
    """
    return num_texts - min(num_texts - 1, max(1, round(share * num_texts)))


def too_few(path: str, count: int, noun: str) -> CorpusError:
    """Return the error about a training file with only one different text, named by `noun`."""
    found = f"one {noun}" if count == 1 else f"{count:,} {noun}s, which are all equal"
    return CorpusError(
        f"{path} has {found}; at least two different ones are needed, one of them for validation. "
        f"Add a {noun}, or pass --validation"
    )


def groups_of(texts: Iterable[Hashable]) -> Ids:
    """Return the number of the group of each text; equal texts are in the same group."""
    numbers: dict[Hashable, int] = {}
    groups = [numbers.setdefault(text, len(numbers)) for text in texts]
    return np.array(groups, dtype=np.int64)


def members_of(groups: Ids) -> list[Ids]:
    """Return the indices of the examples of each group, in the order of the groups."""
    order = np.argsort(groups, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)


def keeps_classes(labels: Ids, left: Counter[int]) -> bool:
    """Return whether every class keeps a training example without examples with these labels.

    `left` has the number of examples of each class that are left for training.
    """
    return all(left[label] > count for label, count in Counter(labels.tolist()).items())
