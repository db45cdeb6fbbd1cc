"""The tasks on whole texts besides classification: any number of labels, and regression.

The methods import torch; reading and checking the texts does not.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bilm.errors import CorpusError
from downstream.settings.sections import Settings
from downstream.tasks.classification import Task, check_known, read_task
from downstream.tasks.text_task import (
    Split,
    TextTask,
    make_splits,
    read_files,
    sorted_names,
    text_columns,
)
from downstream.texts.counts import counted
from downstream.texts.labelled import TargetTexts
from downstream.texts.targets import read_label_sets, read_numbers

if TYPE_CHECKING:
    from downstream.heads.saved_head import Description, HeadInputs
    from downstream.heads.text_targets import Indicators, LabelSets, Numbers
    from downstream.tasks.target_scores import LabelSetScores, NumberScores


logger = logging.getLogger(__name__)

_SUSPECT_R2 = -10.0


@dataclass(frozen=True)
class LabelSetTask(TextTask):
    """Texts with any number of labels; the labels of a split are (texts, labels)."""

    files: dict[str, TargetTexts[tuple[str, ...]]]
    labels: tuple[str, ...]
    splits: dict[str, Split]

    def describe(self, settings: Settings, inputs: HeadInputs) -> Description:
        """Return the description of a head with a sigmoid per label."""
        from downstream.heads.text_targets import TargetRecord

        target = settings.target
        record = TargetRecord(
            kind="multilabel", separator=target.separator, threshold=target.threshold
        )
        return self.describe_head(settings, inputs, self.labels, record)

    def score(self, labels: Indicators, predictions: LabelSets) -> LabelSetScores:
        """Compare the predicted labels with the true ones."""
        from downstream.tasks.target_scores import score_label_sets

        return score_label_sets(labels, predictions["chosen"], self.labels)


@dataclass(frozen=True)
class NumberTask(TextTask):
    """Texts with a number each."""

    files: dict[str, TargetTexts[float]]
    splits: dict[str, Split]

    def describe(self, settings: Settings, inputs: HeadInputs) -> Description:
        """Return the description of a head with one output."""
        from downstream.heads.text_targets import number_target

        target = number_target(self.splits["train"].labels)
        return self.describe_head(settings, inputs, (), target)

    def score(self, numbers: Numbers, predictions: Numbers) -> NumberScores:
        """Compare the predicted numbers with the true ones."""
        from downstream.tasks.target_scores import score_numbers

        scores = score_numbers(numbers, predictions)
        if scores.r2 < _SUSPECT_R2:
            logger.warning(
                "R^2 of %s is %.3g: the error is much larger than the differences between the "
                "numbers; check that all files have numbers of the same unit",
                counted(len(numbers), "text"),
                scores.r2,
            )
        return scores


def read_text_task(settings: Settings) -> Task | LabelSetTask | NumberTask:
    """Read and check all texts with the targets that the settings name."""
    if settings.target.kind == "multilabel":
        return read_label_set_task(settings)
    if settings.target.kind == "regression":
        return read_number_task(settings)
    return read_task(settings)


def read_label_set_task(settings: Settings) -> LabelSetTask:
    """Read texts with any number of labels; a share of all texts is used for validation."""
    columns, separator = text_columns(settings.data), settings.target.separator
    files = read_files(settings.data, lambda path: read_label_sets(path, columns, separator))
    names = sorted_names(name for labels in files["train"].targets for name in labels)
    if not names:
        raise CorpusError(
            f"no text of {files['train'].source} has a label; at least one label is needed. Check "
            "the label column"
        )
    rows = {name: _indicators(file, names) for name, file in files.items()}
    splits = make_splits(files, rows, np.zeros(len(rows["train"]), dtype=np.int64), settings)
    if len(splits["train"]) < 2:
        raise CorpusError(
            f"{files['train'].source} has only one text for training; at least two are needed"
        )
    return LabelSetTask(files, names, splits)


def _indicators(data: TargetTexts[tuple[str, ...]], names: tuple[str, ...]) -> Indicators:
    check_known(data.targets, names, data)
    places = {name: i for i, name in enumerate(names)}
    result = np.zeros((len(data), len(names)), dtype=np.float32)
    for row, labels in zip(result, data.targets, strict=True):
        row[[places[name] for name in labels]] = 1
    return result


def read_number_task(settings: Settings) -> NumberTask:
    """Read texts with numbers; a share of all texts is used for validation."""
    columns = text_columns(settings.data)
    files = read_files(settings.data, lambda path: read_numbers(path, columns))
    rows = {name: np.array(file.targets, dtype=np.float32) for name, file in files.items()}
    splits = make_splits(files, rows, np.zeros(len(rows["train"]), dtype=np.int64), settings)
    numbers = splits["train"].labels
    if (numbers == numbers[0]).all():
        source = files["train"].source
        what = f"all {len(numbers):,} training texts of {source} have"
        if len(numbers) == 1:
            what = f"the only training text of {source} has"
        raise CorpusError(
            f"{what} the number {numbers[0]:g}; regression needs different numbers. Check the "
            "label column"
        )
    _check_validation(splits["validation"], files)
    return NumberTask(files, splits)


def _check_validation(split: Split, files: dict[str, TargetTexts[float]]) -> None:
    """Reject a validation split of one number, for which R^2 is not defined."""
    numbers, source = split.labels, files[split.file].source
    if (numbers == numbers[0]).all():
        what = "the only validation text" if len(numbers) == 1 else "each validation text"
        remedy = "raise --validation-share, or pass --validation"
        if split.file == "validation":
            remedy = "add texts with other numbers"
        raise CorpusError(
            f"{what} of {source} has the number {numbers[0]:g}, but R^2, which chooses the epoch, "
            f"needs different numbers; {remedy}"
        )
