"""Write a model directory or the published files, read them back and compare them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from bilm.errors import CheckpointError
from bilm.files.writing import reject_existing
from bilm.model.language_model import BiLm
from bilm.pretrained.file_names import (
    OPTIONS_FILE,
    PUBLISHED_WEIGHTS_FILE,
    VOCABULARY_FILE,
    WeightType,
)
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.pretrained.model_files import stored_weights


def export_model(
    pretrained: PretrainedBiLm,
    directory: Path,
    overwrite: bool = False,
    dtype: WeightType = "float32",
    card: str | None = None,
) -> None:
    """Write a model directory, read it back and compare all weights, which `dtype` rounds."""
    pretrained.save_pretrained(directory, overwrite, dtype, card)
    written = {name: w.float() for name, w in stored_weights(pretrained.model, dtype).items()}
    _check_equal(written, PretrainedBiLm.from_pretrained(directory).model, directory)


def export_published(
    pretrained: PretrainedBiLm,
    directory: Path,
    without_softmax: bool = False,
    overwrite: bool = False,
) -> None:
    """Write options.json, weights.hdf5 and vocab.txt, read them back and compare all weights."""
    _check_free(directory, overwrite)
    options, weights = directory / OPTIONS_FILE, directory / PUBLISHED_WEIGHTS_FILE
    if without_softmax:
        pretrained = replace(pretrained, model=pretrained.model.without_softmax())
    pretrained.save_published(options, weights)
    if pretrained.vocabulary is not None:
        pretrained.vocabulary.write(directory / VOCABULARY_FILE)
    restored = PretrainedBiLm.from_published(options, weights)
    _check_equal(dict(pretrained.model.named_parameters()), restored.model, directory)


def _check_free(directory: Path, overwrite: bool) -> None:
    """Reject a file in place of the directory, and existing output unless `overwrite` is set."""
    if directory.exists() and not directory.is_dir():
        raise CheckpointError(f"{directory} is a file; pass the path of a directory")
    for name in (OPTIONS_FILE, PUBLISHED_WEIGHTS_FILE, VOCABULARY_FILE):
        reject_existing(directory / name, CheckpointError, overwrite)


def _check_equal(expected: Mapping[str, Tensor], read: BiLm, directory: Path) -> None:
    actual = dict(read.named_parameters())
    if expected.keys() != actual.keys() or not all(
        torch.equal(expected[name].cpu(), actual[name]) for name in expected
    ):
        raise CheckpointError(
            f"verification failed: the weights read back from {directory} differ from those written"
        )
