"""`train.init_from`: start a new run from the weights of another model.

Softmax rows, and word embeddings of a model without characters, are copied word by word: words that
both vocabularies contain keep their rows, and new words keep their fresh initialization. If the
source has no softmax, the whole softmax keeps its fresh initialization.
"""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from bilm.errors import ConfigError
from bilm.model.language_model import BiLm
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.vocabulary import Vocabulary

logger = logging.getLogger(__name__)


def initialize_from(model: BiLm, vocabulary: Vocabulary, path: Path) -> None:
    """Copy the weights of the model at `path` (see `PretrainedBiLm.open`) into `model`."""
    source = PretrainedBiLm.open(path)
    own, other = model.config.model_dump(), source.model.config.model_dump()
    differing = [
        f"model.{key}: {own[key]} in this run, {other[key]} in {path}"
        for key in ("characters", "lstm", "bidirectional")
        if own[key] != other[key]
    ]
    if differing:
        raise ConfigError(
            f"train.init_from is {path}, whose model has a different configuration:\n  "
            + "\n  ".join(differing)
        )
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
        logger.info("init_from: the source has no softmax; the new one keeps its initial values")
        return
    words = [word for word in vocabulary.words if word in source.vocabulary]
    target_rows = torch.tensor([vocabulary[word] for word in words])
    source_rows = torch.tensor([source.vocabulary[word] for word in words])
    source_weights = dict(source.model.named_parameters())
    for name, parameter in model.named_parameters():
        if name in _word_tables(model) and name in source_weights:
            rows = source_weights[name][source_rows].to(parameter.device)
            parameter[target_rows.to(parameter.device)] = rows
    logger.info(
        "init_from: %s of %s words keep their softmax rows",
        f"{len(words):,}",
        f"{len(vocabulary):,}",
    )
