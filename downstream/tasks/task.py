"""The task core: what a task defines, and what all tasks share.

A `Task` is the data of one experiment, read and checked from files (errors name file and line). It
defines four things: the texts that the biLM reads (`inputs`); the examples of each split, made from
the features of these texts (`examples`); the description of its head, which builds it, saves it and
loads it (`describe`, see `heads/saved_head.py`); and the scores of predictions (`score`). A head
(`heads/head.py`) maps batches to outputs and defines their loss and how they are decoded.

Everything else is shared: the store of representations (`features/store.py`), the training loop
(`training/fit.py`), mixes, seeds and the choice of the best head (`training/experiment.py`), the
report (`reports/report.py`), the directory of a saved head, the common flags
(`settings/flags.py`), and the command that predicts (`predict.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

from downstream.features.batches import Examples
from downstream.features.plain_words import PlainWords
from downstream.features.store import Store
from downstream.features.store_format import Kind
from downstream.features.texts_to_layers import TextReading, Texts
from downstream.features.word_vectors import Table
from downstream.heads.head import Predictions
from downstream.heads.saved_head import HeadDescription, HeadInputs
from downstream.settings.common import TaskSettings

AnySettings = TypeVar("AnySettings", bound=TaskSettings, contravariant=True)
AnyScores = TypeVar("AnyScores", bound="Scores", covariant=True)


@dataclass(frozen=True)
class Inputs:
    """The texts that the biLM reads, by name of their file, and how it reads them."""

    texts: Mapping[str, Texts]
    reading: TextReading
    kind: Kind


@dataclass(frozen=True)
class Features:
    """The words of each file with their representations, and the word vectors of its types."""

    files: Mapping[str, Store | PlainWords]
    tables: Mapping[str, Table]  # empty without word vectors

    def without_layers(self) -> Features:
        """Return the same words and vectors without representations, for heads without a mix."""
        plain = {
            name: PlainWords.of_store(file) if isinstance(file, Store) else file
            for name, file in self.files.items()
        }
        return Features(plain, self.tables)


class Scores(Protocol):
    """The scores of one split; a dataclass, so that they can be written to results.json."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def main(self) -> float:
        """The score by which heads are compared."""


class Task(Protocol[AnySettings, AnyScores]):
    """The data of an experiment, its head and its scores."""

    def inputs(self, settings: AnySettings, /) -> Inputs:
        """Return the texts that the biLM reads."""

    def examples(self, settings: AnySettings, features: Features, /) -> dict[str, Examples]:
        """Return the examples of each split."""

    def describe(self, settings: AnySettings, inputs: HeadInputs, /) -> HeadDescription:
        """Return the description of a head."""

    def score(self, targets: Any, predictions: Predictions, /) -> AnyScores:
        """Compare the predictions for a split with its targets."""
