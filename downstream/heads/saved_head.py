"""A trained head on disk: its description (`classifier.json`) and weights (`head.safetensors`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import Field

from bilm.errors import CheckpointError
from bilm.files.sections import Section, parse_section
from bilm.files.strict_json import read_json
from bilm.files.writing import write_text
from bilm.pretrained.tensors import load_tensors, save_tensors
from downstream.features.batches import FeatureShape
from downstream.features.texts_to_layers import TextReading, poolings_of
from downstream.heads.text_model import TextModel
from downstream.settings.mix_kinds import MixKind
from downstream.settings.sections import HeadSettings, MixSettings

CLASSIFIER_FILE = "classifier.json"
HEAD_FILE = "head.safetensors"


class FileRecord(Section):
    """The path and digest of a model or file that a classifier needs."""

    path: str
    digest: str

    def check(self, what: str, path: Path, digest: str) -> None:
        """Raise CheckpointError unless the file now at `path` is the recorded one."""
        if digest != self.digest:
            raise CheckpointError(
                f"{path} is not the {what} that the classifier was trained with (its digest is "
                f"{digest[:12]}, expected {self.digest[:12]}); use that one, or train the "
                "classifier again"
            )


class Description(Section):
    """The content of classifier.json."""

    format: Literal["bilm-classifier"]
    version: Literal[1]
    bilm: FileRecord
    vectors: FileRecord | None
    vector_dim: int
    classes: tuple[str, ...]
    mix_kind: str
    mix: MixSettings
    head: HeadSettings
    num_layers: int
    dim: int
    tokenized: bool
    max_words: Annotated[int, Field(ge=1)]
    seed: Annotated[int, Field(ge=0)]

    @classmethod
    def read(cls, directory: Path) -> Description:
        """Read the description of the classifier in `directory`."""
        path = directory / CLASSIFIER_FILE
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
        num_poolings = len(poolings_of(self.head.kind))
        return FeatureShape(self.num_layers, self.dim, self.vector_dim, num_poolings)

    @property
    def reading(self) -> TextReading:
        """The settings for reading texts."""
        return TextReading(self.tokenized, self.max_words)

    def check_shape(self, actual: FeatureShape, directory: Path) -> None:
        """Raise CheckpointError unless the biLM and the word vectors have the described shape.

        This is checked before a head is allocated.
        """
        for name in ("num_layers", "dim", "vector_dim"):
            described, value = getattr(self, name), getattr(actual, name)
            if described != value:
                raise CheckpointError(
                    f"{directory / CLASSIFIER_FILE}: {name} is {described}, but it is {value} in "
                    "the biLM and the word vectors; train the classifier again"
                )


def make_model(description: Description) -> TextModel:
    """Return the described mixes and head with new weights."""
    return TextModel(
        MixKind.parse(description.mix_kind),
        description.mix,
        description.head,
        description.shape,
        num_classes=len(description.classes),
        seed=description.seed,
    )


def save_classifier(description: Description, model: TextModel, directory: Path) -> None:
    """Write the two files of a classifier into an existing directory."""
    tensors = {key: value.cpu().contiguous() for key, value in model.state_dict().items()}
    save_tensors(tensors, directory / HEAD_FILE)
    tree = json.loads(description.model_dump_json())
    write_text(directory / CLASSIFIER_FILE, json.dumps(tree, indent=2) + "\n")


def load_model(description: Description, directory: Path) -> TextModel:
    """Read the described mixes and head.

    Their memory is allocated only after the shapes in the file have been checked.
    """
    path = directory / HEAD_FILE
    tensors = load_tensors(path)
    try:
        with torch.device("meta"):
            shapes = make_model(description).state_dict()
    except (RuntimeError, OverflowError) as e:
        raise CheckpointError(
            f"{directory / CLASSIFIER_FILE} describes an invalid head: {e}"
        ) from None
    expected = {key: (tuple(value.shape), value.dtype) for key, value in shapes.items()}
    stored = {key: (tuple(value.shape), value.dtype) for key, value in tensors.items()}
    if expected != stored:
        keys = sorted(k for k in expected.keys() | stored if expected.get(k) != stored.get(k))
        raise CheckpointError(f"{path} does not match {CLASSIFIER_FILE}: {', '.join(keys[:5])}")
    model = make_model(description)
    model.load_state_dict(tensors)
    return model
