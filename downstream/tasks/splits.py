"""The names of the splits of a task, their files, and the part that is used for validation."""

from __future__ import annotations

from typing import Protocol

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
