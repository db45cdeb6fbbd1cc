"""From a run to the files that users exchange, each read back and compared."""

from __future__ import annotations

import copy
from pathlib import Path

import torch

from bilm.errors import CheckpointError
from bilm.files.writing import reject_existing
from bilm.model.language_model import BiLm
from bilm.pretrained.model_directory import VOCABULARY_FILE, PretrainedBiLm


def export_model(pretrained: PretrainedBiLm, directory: Path, overwrite: bool = False) -> None:
    """Write a model directory and read it back."""
    pretrained.save_pretrained(directory, overwrite)
    _assert_equal(pretrained.model, PretrainedBiLm.from_pretrained(directory).model, directory)


def export_published(
    pretrained: PretrainedBiLm, directory: Path, without_softmax: bool, overwrite: bool = False
) -> None:
    """Write options.json, weights.hdf5 and vocab.txt, and read them back."""
    options, weights = published_paths(directory, overwrite)
    if without_softmax:
        model = copy.copy(pretrained.model)
        model._modules = {**model._modules, "softmax": None}
        pretrained = PretrainedBiLm(model, pretrained.vocabulary, pretrained.tokenizer)
    pretrained.save_published(options, weights)
    if pretrained.vocabulary is not None:
        pretrained.vocabulary.write(directory / VOCABULARY_FILE)
    again = PretrainedBiLm.from_published(options, weights)
    _assert_equal(pretrained.model, again.model, directory)


def published_paths(directory: Path, overwrite: bool) -> tuple[Path, Path]:
    """Where the published pair goes; what stands there is refused unless `overwrite`."""
    if directory.exists() and not directory.is_dir():
        raise CheckpointError(f"{directory} is a file; a directory is expected")
    names = ("options.json", "weights.hdf5", VOCABULARY_FILE)
    for path in (directory / name for name in names):
        reject_existing(path, CheckpointError, overwrite)
    return directory / names[0], directory / names[1]


def _assert_equal(written: BiLm, read: BiLm, where: Path) -> None:
    ours, theirs = dict(written.named_parameters()), dict(read.named_parameters())
    if ours.keys() != theirs.keys() or not all(torch.equal(ours[n], theirs[n]) for n in ours):
        raise CheckpointError(f"what was read back from {where} is not what was written")
