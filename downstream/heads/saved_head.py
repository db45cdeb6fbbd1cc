"""A trained head on disk: its description, a JSON file, and its weights (`head.safetensors`).

Each task has its own description; that of a classifier is `classifier.json`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor

from bilm.errors import CheckpointError
from bilm.files.sections import Section, parse_section
from bilm.files.strict_json import read_json
from bilm.files.writing import write_text
from bilm.pretrained.tensors import load_tensors, save_tensors
from downstream.features.batches import FeatureShape
from downstream.features.texts_to_layers import TextReading, poolings_of
from downstream.heads.head import MixedModel
from downstream.heads.text_model import TextModel, TextNetwork
from downstream.heads.text_targets import LabelSetModel, NumberModel, Outputs, TargetRecord
from downstream.settings.common import MixSettings
from downstream.settings.mix_kinds import MixKind
from downstream.settings.sections import CLASSIFIER_FILE, HeadSettings, LongTexts

HEAD_FILE = "head.safetensors"


class FileRecord(Section):
    """The path and digest of a model or file that a head needs."""

    path: str
    digest: str

    def check(self, what: str, path: Path, digest: str) -> None:
        """Raise CheckpointError unless the file now at `path` is the recorded one."""
        if digest != self.digest:
            raise CheckpointError(
                f"{path} is not the {what} that the head was trained with (its digest is "
                f"{digest[:12]}, expected {self.digest[:12]}); use that one, or train the head "
                "again"
            )


class HeadDescription(Section):
    """The fields that describe every trained head; each task adds its own."""

    file_name: ClassVar[str]

    format: str
    version: Literal[1]
    bilm: FileRecord | None  # None for a head that reads only words
    vectors: FileRecord | None
    vector_dim: int
    mix_kind: str
    mix: MixSettings
    num_layers: int
    dim: int
    seed: Annotated[int, Field(ge=0)]

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Read the description of the head in `directory`."""
        path = directory / cls.file_name
        description = parse_section(
            cls, read_json(path, CheckpointError), str(path), CheckpointError
        )
        try:
            MixKind.parse(description.mix_kind)
        except ValueError as e:
            raise CheckpointError(f"{path}: {e}") from None
        return description

    @property
    def shape(self) -> FeatureShape:
        """The shape of the features that the head reads."""
        return FeatureShape(self.num_layers, self.dim, self.vector_dim)

    def build(self) -> MixedModel:
        """Return the described mixes and head with new weights."""
        raise NotImplementedError

    def check_shape(self, actual: FeatureShape, directory: Path) -> None:
        """Raise CheckpointError unless the biLM and the word vectors have the described shape.

        This is checked before a head is allocated.
        """
        for name in ("num_layers", "dim", "vector_dim"):
            described, value = getattr(self, name), getattr(actual, name)
            if described != value:
                raise CheckpointError(
                    f"{directory / self.file_name}: {name} is {described}, but it is {value} in "
                    "the biLM and the word vectors; train the head again"
                )


class Description(HeadDescription):
    """The content of classifier.json.

    `classes` are the labels of a head with any number of labels, and empty for a regression.
    """

    file_name: ClassVar[str] = CLASSIFIER_FILE

    format: Literal["bilm-classifier"]
    bilm: FileRecord
    classes: tuple[str, ...]
    head: HeadSettings
    tokenized: bool
    max_words: Annotated[int, Field(ge=1)]
    long_texts: LongTexts = "cut"  # the default is that of earlier versions
    target: TargetRecord = TargetRecord()

    @property
    def shape(self) -> FeatureShape:
        """The shape of the features that the head reads."""
        num_poolings = len(poolings_of(self.head.kind))
        return FeatureShape(self.num_layers, self.dim, self.vector_dim, num_poolings)

    @property
    def reading(self) -> TextReading:
        """The settings for reading texts."""
        return TextReading(self.tokenized, self.max_words, self.long_texts)

    def build(self) -> TextNetwork:
        """Return the described mixes and head with new weights."""
        return make_text_model(
            Outputs(1 if self.target.kind == "regression" else len(self.classes), self.target),
            MixKind.parse(self.mix_kind),
            self.mix,
            self.head,
            self.shape,
            self.seed,
        )


def make_text_model(
    outputs: Outputs,
    kind: MixKind,
    mix: MixSettings,
    head: HeadSettings,
    shape: FeatureShape,
    seed: int,
) -> TextNetwork:
    """Return the mixes and the head for a target, with new weights."""
    if outputs.target.kind == "multilabel":
        return LabelSetModel(outputs, kind, mix, head, shape, seed)
    if outputs.target.kind == "regression":
        return NumberModel(outputs, kind, mix, head, shape, seed)
    return TextModel(kind, mix, head, shape, outputs.count, seed)


@dataclass(frozen=True)
class HeadInputs:
    """What a task is given to describe a head: its inputs, its mix and its seed."""

    bilm: FileRecord | None
    vectors: FileRecord | None
    shape: FeatureShape
    mix_kind: str
    seed: int

    def fields(self, mix: MixSettings) -> dict[str, Any]:
        """Return the fields of a description that follow from the inputs."""
        return {
            "version": 1,
            "bilm": self.bilm,
            "vectors": self.vectors,
            "vector_dim": self.shape.vector_dim,
            "mix_kind": self.mix_kind,
            "mix": mix,
            "num_layers": self.shape.num_layers,
            "dim": self.shape.dim,
            "seed": self.seed,
        }


def make_model(description: Description) -> TextNetwork:
    """Return the described mixes and head of a classifier with new weights."""
    return description.build()


def save_classifier(description: Description, model: TextNetwork, directory: Path) -> None:
    """Write the two files of a classifier into an existing directory."""
    save_head(description, model, directory)


def save_head(description: HeadDescription, model: MixedModel, directory: Path) -> None:
    """Write the two files of a head into an existing directory."""
    tensors = {key: value.cpu().contiguous() for key, value in model.state_dict().items()}
    save_tensors(tensors, directory / HEAD_FILE)
    tree = json.loads(description.model_dump_json())
    write_text(directory / description.file_name, json.dumps(tree, indent=2) + "\n")


def load_weights(description: HeadDescription, directory: Path) -> dict[str, Tensor]:
    """Read the weights of a head, and check that they are those that it describes.

    The memory of the head is allocated only after the shapes in the file have been checked.
    """
    path = directory / HEAD_FILE
    tensors = load_tensors(path)
    try:
        with torch.device("meta"):
            shapes = description.build().state_dict()
    except (RuntimeError, OverflowError) as e:
        raise CheckpointError(
            f"{directory / description.file_name} describes an invalid head: {e}"
        ) from None
    expected = {key: (tuple(value.shape), value.dtype) for key, value in shapes.items()}
    stored = {key: (tuple(value.shape), value.dtype) for key, value in tensors.items()}
    if expected != stored:
        keys = sorted(k for k in expected.keys() | stored if expected.get(k) != stored.get(k))
        raise CheckpointError(
            f"{path} does not match {description.file_name}: {', '.join(keys[:5])}"
        )
    return tensors


def load_model(description: HeadDescription, directory: Path) -> MixedModel:
    """Read the described mixes and head."""
    tensors = load_weights(description, directory)
    model = description.build()
    model.load_state_dict(tensors)
    return model
