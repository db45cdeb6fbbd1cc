"""downstream/heads/saved_head."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import Field

from bilm.embedding.embedder import Embedder
from bilm.errors import CheckpointError
from bilm.files.sections import Section
from bilm.files.writing import write_text
from bilm.pretrained.tensors import load_tensors, save_tensors
from downstream.features.word_vectors import WordVectors
from downstream.heads.text_model import TextModel
from downstream.settings.sections import MIX, HeadSettings, MixSettings

CLASSIFIER_FILE = "classifier.json"

HEAD_FILE = "head.safetensors"


class FileRecord(Section):
    """A thing beside the classifier: where it was, and what it was."""

    path: str
    digest: str


class Description(Section):
    """What classifier.json holds."""

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


def make_model(description: Description) -> TextModel:
    """The mixes and head described, with fresh weights."""
    return TextModel(
        description.mix_kind,
        description.mix,
        description.head,
        num_layers=description.num_layers,
        dim=description.dim,
        vector_dim=description.vector_dim,
        num_classes=len(description.classes),
        seed=description.seed,
    )


def save_classifier(description: Description, model: TextModel, directory: Path) -> None:
    """Write the two files of a classifier into an existing directory."""
    tensors = {key: value.contiguous() for key, value in model.state_dict().items()}
    save_tensors(tensors, directory / HEAD_FILE)
    tree = json.loads(description.model_dump_json())
    write_text(directory / CLASSIFIER_FILE, json.dumps(tree, indent=2) + "\n")


def _check_same(what: str, path: Path, found: str, expected: str, directory: Path) -> None:
    if found != expected:
        raise CheckpointError(
            f"{path} is not the {what} that {directory} was trained with (digest {found[:12]}, "
            f"not {expected[:12]}); give that one, or train the head again on this"
        )


def _check_widths(
    description: Description, embedder: Embedder, vectors: WordVectors | None, path: Path
) -> None:
    """What the classifier says of its inputs must be so, before a head is made for them."""
    vector_dim = 0 if vectors is None else vectors.dim
    for name, found in (
        ("num_layers", embedder.num_layers),
        ("dim", embedder.dim),
        ("vector_dim", vector_dim),
    ):
        if getattr(description, name) != found:
            raise CheckpointError(
                f"{path}: {name} is {getattr(description, name)}, but it is {found} by the biLM "
                "and the word vectors; train the head again"
            )
    if not MIX.fullmatch(description.mix_kind):
        raise CheckpointError(f"{path}: {description.mix_kind!r:.60} is no mix")


def _head(description: Description, path: Path) -> TextModel:
    """The head with its weights; memory for it is taken once the file is seen to hold them."""
    tensors = load_tensors(path)
    try:
        with torch.device("meta"):
            shapes = make_model(description).state_dict()
    except (RuntimeError, OverflowError) as e:
        raise CheckpointError(f"{path.parent / CLASSIFIER_FILE}: no such head: {e}") from None
    wanted = {key: (tuple(value.shape), value.dtype) for key, value in shapes.items()}
    found = {key: (tuple(value.shape), value.dtype) for key, value in tensors.items()}
    if wanted != found:
        odd = sorted(key for key in wanted.keys() | found if wanted.get(key) != found.get(key))
        raise CheckpointError(f"{path} does not fit {CLASSIFIER_FILE} in {', '.join(odd[:5])}")
    model = make_model(description)
    model.load_state_dict(tensors)
    return model
