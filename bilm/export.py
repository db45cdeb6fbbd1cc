"""From a run to the files that users exchange, each read back and compared."""

from __future__ import annotations

import copy
from pathlib import Path

import torch

from bilm.checkpoints import WEIGHTS, CheckpointStore
from bilm.config import CONFIG_FILE, load_config
from bilm.corpus import Corpus
from bilm.errors import CheckpointError
from bilm.initial_weights import BEST_MODEL_DIRECTORY
from bilm.model import BiLm
from bilm.pretrained import VOCABULARY_FILE, PretrainedBiLm


def model_of_run(run: Path, which: str) -> PretrainedBiLm:
    """The best model of a run, or that of its newest whole checkpoint."""
    if which == "best":
        if not (run / BEST_MODEL_DIRECTORY).is_dir():
            raise CheckpointError(
                f"{run} has no best model yet: no held-out evaluation has been done; "
                "--which newest takes the newest checkpoint"
            )
        return PretrainedBiLm.from_pretrained(run / BEST_MODEL_DIRECTORY)
    checkpoint = CheckpointStore(run / "checkpoints").newest()
    if checkpoint is None:
        raise CheckpointError(f"{run} holds no checkpoint")
    config = load_config(run / CONFIG_FILE)
    corpus = Corpus.open(config.data.corpus)
    if corpus.fingerprint != checkpoint.run.get("corpus"):
        raise CheckpointError(f"{corpus.path} is not the corpus that {run} was trained on")
    names = checkpoint.names(WEIGHTS)
    return PretrainedBiLm.from_weights(
        config.model,
        corpus,
        {name: checkpoint.tensor(WEIGHTS, name) for name in names},
        f"the weights in {checkpoint.path / WEIGHTS}.safetensors",
    )


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
        if path.exists() and not overwrite:
            raise CheckpointError(f"{path} exists already; choose another place, or --overwrite")
    return directory / names[0], directory / names[1]


def _assert_equal(written: BiLm, read: BiLm, where: Path) -> None:
    ours, theirs = dict(written.named_parameters()), dict(read.named_parameters())
    if ours.keys() != theirs.keys() or not all(torch.equal(ours[n], theirs[n]) for n in ours):
        raise CheckpointError(f"what was read back from {where} is not what was written")
