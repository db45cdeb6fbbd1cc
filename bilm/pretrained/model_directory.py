"""A trained biLM together with its vocabulary and tokenizer, and the model directory on disk.

A model directory is self-contained: `config.json` (the model section, the tokenizer),
`model.safetensors` (the weights), `vocab.txt` (the words of the softmax, if there is one) and, for
sentencepiece, `tokenizer.model`. It contains nothing executable, and every file is checked when it
is read.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from bilm.errors import CheckpointError, ConfigError, CorpusError
from bilm.files.sections import Section, parse_section
from bilm.files.strict_json import read_json
from bilm.files.writing import atomic_directory, write_text
from bilm.model.config import ModelConfig, VocabularySize
from bilm.model.language_model import BiLm, allocate, shape_only_model
from bilm.pretrained.archives import extracted
from bilm.pretrained.tensors import TensorFile, save_tensors
from bilm.text.tokenizers import Tokenizer, TokenizerSpec, load_tokenizer
from bilm.text.vocabulary import Vocabulary

CONFIG_FILE = "config.json"

WEIGHTS_FILE = "model.safetensors"

VOCABULARY_FILE = "vocab.txt"

OPTIONS_FILE, PUBLISHED_WEIGHTS_FILE = "options.json", "weights.hdf5"

NLPL_WEIGHTS_FILE = "model.hdf5"  # the name of the weights in the NLPL repository

# The parts of a run directory that `PretrainedBiLm.open` recognizes.
BEST_MODEL_DIRECTORY, CHECKPOINTS_DIRECTORY = "best", "checkpoints"


logger = logging.getLogger(__name__)


class _Description(Section):
    """The content of config.json."""

    format: Literal["bilm-model"]
    version: Literal[1]
    model: ModelConfig
    vocabulary_size: VocabularySize | None
    has_softmax: bool
    tokenizer: TokenizerSpec | None


@dataclass(frozen=True)
class PretrainedBiLm:
    """A model, the words of its softmax, and the tokenizer of the text that it was trained on.

    The vocabulary is None if the model has no softmax. The tokenizer is None if it is unknown, as
    for published files.
    """

    model: BiLm
    vocabulary: Vocabulary | None = None
    tokenizer: Tokenizer | None = None

    @classmethod
    def open(cls, path: Path | str) -> PretrainedBiLm:
        """Read the model at `path`.

        `path` is a run (its best model is read), a model directory, a directory with the published
        `options.json` and `weights.hdf5` (or `model.hdf5`), and `vocab.txt` if there is one, or a
        .zip file of such a directory. An invalid vocabulary is ignored if the model has no softmax
        and reads characters.
        """
        path = Path(path)
        if path.suffix == ".zip" and path.is_file():
            weights = (PUBLISHED_WEIGHTS_FILE, NLPL_WEIGHTS_FILE)
            with extracted(path, [[OPTIONS_FILE], weights], VOCABULARY_FILE) as directory:
                return cls._from_published_directory(directory)
        if (path / BEST_MODEL_DIRECTORY).is_dir():
            return cls.from_pretrained(path / BEST_MODEL_DIRECTORY)
        if (path / CHECKPOINTS_DIRECTORY).is_dir():
            raise ConfigError(
                f"the run {path} has no best model yet, because no held-out evaluation has been "
                "done; export its newest checkpoint with `bilm export --which newest`"
            )
        if (path / OPTIONS_FILE).is_file():
            return cls._from_published_directory(path)
        if (path / CONFIG_FILE).is_file():
            return cls.from_pretrained(path)
        raise ConfigError(
            f"{path} is neither a run with a {BEST_MODEL_DIRECTORY}/ model, nor a model directory "
            f"with {CONFIG_FILE}, nor a directory or .zip file with {OPTIONS_FILE} and "
            f"{PUBLISHED_WEIGHTS_FILE} or {NLPL_WEIGHTS_FILE}"
        )

    @classmethod
    def _from_published_directory(cls, directory: Path) -> PretrainedBiLm:
        weights = directory / PUBLISHED_WEIGHTS_FILE
        if not weights.exists() and (directory / NLPL_WEIGHTS_FILE).exists():
            weights = directory / NLPL_WEIGHTS_FILE
        pretrained = cls.from_published(directory / OPTIONS_FILE, weights)
        vocabulary = directory / VOCABULARY_FILE
        if not vocabulary.is_file():
            return pretrained
        try:
            return pretrained._with_vocabulary(vocabulary)
        except CorpusError as e:
            if pretrained.model.vocabulary_size is not None:
                raise
            logger.warning("the vocabulary is ignored, since the model does not need it: %s", e)
            return pretrained

    @classmethod
    def from_published(
        cls,
        options_json: Path | str,
        weights_hdf5: Path | str,
        vocabulary: Path | str | None = None,
    ) -> PretrainedBiLm:
        """Read the published pair of files, and the vocabulary file if one is given."""
        from bilm.pretrained.published_weights import load_published  # imports h5py

        pretrained = cls(load_published(Path(options_json), Path(weights_hdf5)))
        return pretrained if vocabulary is None else pretrained._with_vocabulary(Path(vocabulary))

    def _with_vocabulary(self, path: Path) -> PretrainedBiLm:
        vocabulary, size = Vocabulary.read(path), self.model.vocabulary_size
        if size not in (None, len(vocabulary)):
            raise CheckpointError(
                f"the vocabulary {path} has {len(vocabulary):,} words; the model of these files "
                f"has {size:,}"
            )
        return replace(self, vocabulary=vocabulary)

    @classmethod
    def from_weights(
        cls,
        config: ModelConfig,
        weights: Mapping[str, Tensor],
        vocabulary: Vocabulary,
        tokenizer: Tokenizer | None,
        source: str = "the weights",
    ) -> PretrainedBiLm:
        """Build a model from its configuration and weights; `source` names them in errors."""
        model = allocate(shape_only_model(config, len(vocabulary)))
        parameters = dict(model.named_parameters())
        if parameters.keys() != weights.keys():
            names = ", ".join(sorted(parameters.keys() ^ weights.keys())[:5])
            raise CheckpointError(f"{source} differ from those of the model in: {names}")
        with torch.no_grad():
            for name, parameter in parameters.items():
                if weights[name].shape != parameter.shape:
                    raise CheckpointError(
                        f"{source}: {name!r} is {tuple(weights[name].shape)}; "
                        f"it must be {tuple(parameter.shape)}"
                    )
                parameter.copy_(weights[name])
        return cls(model, vocabulary, tokenizer)

    @classmethod
    def from_pretrained(cls, directory: Path | str) -> PretrainedBiLm:
        """Read a model directory."""
        directory = Path(directory)
        if not directory.is_dir():
            raise CheckpointError(
                f"the model directory {directory} does not exist; a model is a directory with "
                f"{CONFIG_FILE} and {WEIGHTS_FILE}"
            )
        description = _read_description(directory / CONFIG_FILE)
        tokenizer = None
        if description.tokenizer is not None:
            tokenizer = load_tokenizer(description.tokenizer, directory)
        model = shape_only_model(description.model, description.vocabulary_size)
        if not description.has_softmax:
            model = model.without_softmax()
        model = _read_weights(model, directory / WEIGHTS_FILE)
        vocabulary = None
        if (directory / VOCABULARY_FILE).exists():
            vocabulary = Vocabulary.read(directory / VOCABULARY_FILE)
            if description.vocabulary_size not in (None, len(vocabulary)):
                raise CheckpointError(
                    f"{directory / VOCABULARY_FILE} has {len(vocabulary):,} words, but "
                    f"vocabulary_size in {CONFIG_FILE} is {description.vocabulary_size:,}"
                )
        return cls(model, vocabulary, tokenizer)

    def save_published(self, options_json: Path | str, weights_hdf5: Path | str) -> None:
        """Write the published pair of files."""
        from bilm.pretrained.published_weights import save_published  # imports h5py

        save_published(self.model, Path(options_json), Path(weights_hdf5))

    def save_pretrained(self, directory: Path | str, overwrite: bool = False) -> None:
        """Write a model directory; an existing one is rejected unless `overwrite` is set."""
        description = {
            "format": "bilm-model",
            "version": 1,
            "model": self.model.config.model_dump(mode="json"),
            "vocabulary_size": self.model.vocabulary_size,
            "has_softmax": self.model.softmax is not None,
            "tokenizer": self.tokenizer.spec.to_json() if self.tokenizer is not None else None,
        }
        tensors = {
            name: parameter.detach().cpu().contiguous()
            for name, parameter in self.model.named_parameters()
        }
        _check_replaceable(Path(directory))
        needed = sum(tensor.nbytes for tensor in tensors.values())
        with atomic_directory(Path(directory), CheckpointError, overwrite, needed) as temporary:
            save_tensors(tensors, temporary / WEIGHTS_FILE)
            write_text(temporary / CONFIG_FILE, json.dumps(description, indent=2) + "\n")
            if self.vocabulary is not None:
                self.vocabulary.write(temporary / VOCABULARY_FILE)
            if self.tokenizer is not None:
                self.tokenizer.save(temporary)


def _read_description(path: Path) -> _Description:
    tree = read_json(path, CheckpointError)
    description = parse_section(_Description, tree, str(path), CheckpointError)
    needs_vocabulary = description.has_softmax or description.model.characters is None
    if description.vocabulary_size is None and needs_vocabulary:
        raise CheckpointError(
            f"{path}: vocabulary_size is null; a model with a softmax or with word ids requires it"
        )
    return description


def _check_replaceable(directory: Path) -> None:
    """Reject a directory that is not a model, so that `overwrite` never deletes other files."""
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return
    try:
        tree = read_json(directory / CONFIG_FILE, CheckpointError)
    except CheckpointError:
        tree = None
    if not isinstance(tree, dict) or tree.get("format") != "bilm-model":
        raise CheckpointError(
            f"{directory} exists and is not a model directory, so it is not replaced; choose "
            "another directory"
        )


def _read_weights(model: BiLm, path: Path) -> BiLm:
    """Fill `model` from `path`; memory is allocated only after all names and shapes are checked."""
    if not path.exists():
        raise CheckpointError(f"the weight file {path} does not exist")
    parameters = dict(model.named_parameters())
    with TensorFile(path) as file:
        missing, unexpected = parameters.keys() - file.names, file.names - parameters.keys()
        if missing:
            raise CheckpointError(f"{path} lacks the weights {', '.join(sorted(missing)[:5])}")
        if unexpected:
            raise CheckpointError(
                f"{path} has weights that the model does not have: "
                f"{', '.join(sorted(unexpected)[:5])}"
            )
        for name, parameter in parameters.items():
            dtype, shape = file.dtype_and_shape(name)
            if shape != tuple(parameter.shape) or dtype != "F32":
                raise CheckpointError(
                    f"{path}: {name!r} is {dtype} {shape}; it must be F32 {tuple(parameter.shape)}"
                )
        model = allocate(model)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(file.tensor(name))
    return model
