"""What all tasks on whole texts share: their texts, their splits, and the description of a head.

The methods import torch; reading and splitting the texts does not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from bilm.errors import ConfigError, CorpusError
from downstream.settings.sections import BaselineSettings, DataSettings, Settings
from downstream.tasks.splits import SPLITS, groups_of, keeps_classes, members_of, paths_of
from downstream.texts.counts import counted
from downstream.texts.labelled import Ids, TextColumns

if TYPE_CHECKING:
    from downstream.features.batches import Examples
    from downstream.heads.saved_head import Description, HeadInputs
    from downstream.heads.text_targets import TargetRecord
    from downstream.tasks.task import Features, Inputs

AnyFile = TypeVar("AnyFile")

Labels = npt.NDArray[Any]  # one row or number per text


@dataclass(frozen=True)
class Split:
    """A split: the name of its file, the indices of its texts in that file, and their labels."""

    file: str
    places: Ids
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, indices: Ids) -> Split:
        """Return the split with only the texts at `indices`."""
        return Split(self.file, self.places[indices], self.labels[indices])


class TextFile(Protocol):
    """Texts that were read from a file."""

    @property
    def texts(self) -> tuple[str, ...]: ...


class TextTask:
    """The base class of tasks on whole texts; subclasses are dataclasses with these fields."""

    files: Mapping[str, Any]  # the files by name; each is a `TextFile`
    splits: dict[str, Split]

    def texts(self, split: str) -> list[str]:
        """Return the texts of a split."""
        texts = self.files[self.splits[split].file].texts
        return [texts[i] for i in self.splits[split].places]

    def num_seen(self, split: str) -> int:
        """Return the number of texts of a split that also occur in the training split."""
        seen = set(self.texts("train"))
        return sum(text in seen for text in self.texts(split))

    def inputs(self, settings: Settings) -> Inputs:
        """Return the texts of all files."""
        from downstream.features.texts_to_layers import TextReading
        from downstream.tasks.task import Inputs

        texts = {name: file.texts for name, file in self.files.items()}
        data = settings.data
        reading = TextReading(data.tokenized, data.max_words, data.long_texts)
        return Inputs(texts, reading, settings.head.mode)

    def examples(self, settings: Settings, features: Features) -> dict[str, Examples]:
        """Return the texts and labels of each split."""
        from downstream.features.batches import Examples, Subset, make_source

        sources = {
            name: make_source(file, settings.head.kind, features.tables.get(name))
            for name, file in features.files.items()
        }
        usual_words = settings.data.max_words if settings.data.long_texts == "windows" else None
        return {
            name: Examples(Subset(sources[split.file], split.places), split.labels, usual_words)
            for name, split in self.splits.items()
        }

    def describe(self, settings: Settings, inputs: HeadInputs) -> Description:
        """Return the description of a head."""
        raise NotImplementedError

    def score(self, labels: Any, predictions: Any) -> Any:
        """Compare the predictions for a split with its labels."""
        raise NotImplementedError

    def describe_head(
        self,
        settings: Settings,
        inputs: HeadInputs,
        classes: tuple[str, ...],
        target: TargetRecord,
    ) -> Description:
        """Return the description of a head with these classes or labels, if it has any."""
        from downstream.heads.saved_head import Description

        if inputs.bilm is None:
            raise ConfigError("classification needs a biLM; set --model")
        return Description(
            format="bilm-classifier",
            **inputs.fields(settings.mix),
            classes=classes,
            head=settings.head,
            tokenized=settings.data.tokenized,
            max_words=settings.data.max_words,
            long_texts=settings.data.long_texts,
            target=target,
        )


def text_columns(data: DataSettings) -> TextColumns:
    """Return the columns of texts and labels."""
    return TextColumns(data.label_column, data.text_columns, data.format, data.header)


def read_files(data: DataSettings, read: Callable[[str], AnyFile]) -> dict[str, AnyFile]:
    """Read the files of training, test and, if there is one, validation texts."""
    return {name: read(path) for name, path in paths_of(data).items()}


def make_splits(
    files: Mapping[str, TextFile],
    labels: Mapping[str, Labels],
    strata: Ids,
    settings: BaselineSettings,
) -> dict[str, Split]:
    """Return the splits, given the texts and the labels of each file.

    Without a validation file, a share of each of the `strata` of the training texts is used.
    """
    whole = {name: Split(name, np.arange(len(rows)), rows) for name, rows in labels.items()}
    if settings.data.validation is not None:
        splits = {split: whole[split] for split in SPLITS}
        _check_share(settings.train.share, len(splits["train"]))
        return splits
    share, seed = settings.data.validation_share, settings.train.seed
    try:
        train, validation = split_validation(files["train"].texts, strata, share, seed)
    except CorpusError as e:
        raise CorpusError(f"{settings.data.train}: {e}") from None
    _check_share(settings.train.share, len(train))
    return {
        "train": whole["train"].subset(train),
        "validation": whole["train"].subset(validation),
        "test": whole["test"],
    }


def _check_share(share: float, num_texts: int) -> None:
    """Reject a share of one training text, from which heads cannot standardize their input."""
    if share < 1 and math.ceil(share * num_texts) < 2:
        raise ConfigError(
            f"--train-share {share:g} of {counted(num_texts, 'training text')} is one text; at "
            "least two are needed. Raise it"
        )


def split_validation(
    texts: Sequence[Hashable], labels: Ids, share: float, seed: int
) -> tuple[Ids, Ids]:
    """Return the sorted indices of training and validation texts, `share` of each class.

    Equal texts are in the same part, and every class keeps a training text. The texts for
    validation are drawn with the seed; if all texts differ, they do not depend on the texts.
    """
    if not 0 < share < 1:
        raise ConfigError(f"the validation share is {share}; it must be between 0 and 1")
    rng = np.random.default_rng(seed)
    groups = groups_of(texts)
    members, left = members_of(groups), Counter(labels.tolist())
    wanted = Counter({x: min(n - 1, max(1, round(share * n))) for x, n in left.items()})
    is_chosen = np.zeros(len(labels), dtype=bool)
    for label in sorted(left):
        rows = rng.permutation(np.flatnonzero(labels == label))
        drawn = [members[group] for group in dict.fromkeys(groups[rows].tolist())]
        chosen = _fitting([group for group in drawn if not is_chosen[group[0]]], labels, wanted)
        if not chosen and not is_chosen[rows].any():  # every text occurs more often than wanted
            usable = [group for group in drawn if keeps_classes(labels[group], left)]
            chosen = sorted(usable, key=len)[:1]
        for group in chosen:
            is_chosen[group] = True
            left.subtract(labels[group].tolist())
            wanted.subtract(labels[group].tolist())
    if not is_chosen.any():
        raise CorpusError(
            "no text can be used for validation, because every text is the only one of a class "
            "(equal texts count as one); add texts, or pass --validation"
        )
    return np.flatnonzero(~is_chosen), np.flatnonzero(is_chosen)


def _fitting(drawn: Iterable[Ids], labels: Ids, wanted: Counter[int]) -> list[Ids]:
    """Return the first groups that together have at most the wanted number of each class."""
    chosen = []
    left = wanted.copy()
    for group in drawn:
        counts = Counter(labels[group].tolist())
        if all(left[label] >= count for label, count in counts.items()):
            chosen.append(group)
            left.subtract(counts)
    return chosen


def sorted_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct names, sorted as numbers if all are numbers."""
    distinct = set(names)
    if all(name.isascii() and name.isdecimal() for name in distinct):
        return tuple(sorted(distinct, key=lambda name: (int(name), name)))
    return tuple(sorted(distinct))
