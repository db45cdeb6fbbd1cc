"""`train.init_from`: a new run that starts from the weights of another model.

The source is a run (its best model), a model directory, or a directory with the published
`options.json` and `weights.hdf5`. Softmax rows go over word by word: words that both vocabularies
have keep theirs, new words start fresh, and so does the whole softmax if the source has none.
"""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from bilm.errors import ConfigError
from bilm.model.language_model import BiLm
from bilm.pretrained.model_directory import PretrainedBiLm, load_source
from bilm.text.vocabulary import Vocabulary

logger = logging.getLogger(__name__)


def initialise_from(model: BiLm, vocabulary: Vocabulary, path: Path) -> None:
    """Copy the weights of the model at `path` into `model`."""
    source = load_source(path)
    ours, theirs = model.config.model_dump(), source.model.config.model_dump()
    differing = [
        f"model.{key}: {ours[key]} here, {theirs[key]} there"
        for key in ("characters", "lstm", "bidirectional")
        if ours[key] != theirs[key]
    ]
    if differing:
        raise ConfigError(f"train.init_from {path} is another model:\n  " + "\n  ".join(differing))
    source_weights = dict(source.model.named_parameters())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name not in _word_tables(model):
                parameter.copy_(source_weights[name])
        _copy_rows(model, vocabulary, source)


def _word_tables(model: BiLm) -> set[str]:
    """Return the names of the weights with one row per word."""
    return {"encoder.weight", *(name for name, _ in model.softmax_parameters())}


def _copy_rows(model: BiLm, vocabulary: Vocabulary, source: PretrainedBiLm) -> None:
    if source.vocabulary is None or source.model.vocabulary_size is None:
        logger.info("init_from: the source has no softmax; ours starts fresh")
        return
    words = [word for word in vocabulary.words if word in source.vocabulary]
    ours = torch.tensor([vocabulary[word] for word in words])
    theirs = torch.tensor([source.vocabulary[word] for word in words])
    source_weights = dict(source.model.named_parameters())
    for name, parameter in model.named_parameters():
        if name in _word_tables(model) and name in source_weights:
            parameter[ours] = source_weights[name][theirs]
    logger.info(
        "init_from: %s of %s words keep their softmax rows",
        f"{len(words):,}",
        f"{len(vocabulary):,}",
    )
