"""A trained biLM with all that is needed to use it, and its home on disk.

A model directory stands by itself: `config.json` (the model section, the tokeniser),
`model.safetensors` (the weights), `vocab.txt` (the softmax's words, if there is a softmax) and, for
sentencepiece, `tokenizer.model`. Nothing in it is executable, and everything is checked on loading.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from bilm.corpus.reader import Corpus
from bilm.errors import CheckpointError, ConfigError
from bilm.files.reading import open_regular
from bilm.files.sections import Section, parse_section
from bilm.files.strict_json import read_json
from bilm.files.writing import atomic_directory, write_text
from bilm.model.config import ModelConfig, VocabularySize
from bilm.model.language_model import BiLm, allocate, empty_model, shape_only_model
from bilm.pretrained.published_weights import load_published, save_published
from bilm.pretrained.tensors import save_tensors
from bilm.text.tokenizers import Tokenizer, TokenizerSpec, load_tokenizer
from bilm.text.vocabulary import Vocabulary

CONFIG_FILE = "config.json"

WEIGHTS_FILE = "model.safetensors"

VOCABULARY_FILE = "vocab.txt"


class _Description(Section):
    """What config.json holds."""

    format: Literal["bilm-model"]
    version: Literal[1]
    model: ModelConfig
    vocabulary_size: VocabularySize | None
    has_softmax: bool
    tokenizer: TokenizerSpec | None


@dataclass(frozen=True)
class PretrainedBiLm:
    """A model, the words of its softmax, and the tokeniser of the text that it was trained on.

    The vocabulary is missing where the model has no softmax, and the tokeniser where it is not
    known, as with the published files.
    """

    model: BiLm
    vocabulary: Vocabulary | None = None
    tokenizer: Tokenizer | None = None

    @classmethod
    def from_published(
        cls,
        options_json: Path | str,
        weights_hdf5: Path | str,
        vocabulary: Path | str | None = None,
    ) -> PretrainedBiLm:
        """Read the published pair of files, with the vocabulary file if it is at hand."""
        model = load_published(Path(options_json), Path(weights_hdf5))
        words = Vocabulary.read(Path(vocabulary)) if vocabulary is not None else None
        if words is not None and model.vocabulary_size not in (None, len(words)):
            raise CheckpointError(
                f"the vocabulary {vocabulary} has {len(words):,} words; the model of "
                f"{options_json} has {model.vocabulary_size:,}"
            )
        return cls(model, words)

    @classmethod
    def from_weights(
        cls,
        config: ModelConfig,
        corpus: Corpus,
        weights: Mapping[str, Tensor],
        source: str = "the weights",
    ) -> PretrainedBiLm:
        """A model by its weights, with the vocabulary and the tokeniser of its corpus.

        `source` names the weights in errors.
        """
        model = empty_model(config, corpus.vocabulary_size)
        parameters = dict(model.named_parameters())
        if parameters.keys() != weights.keys():
            odd = ", ".join(sorted(parameters.keys() ^ weights.keys())[:5])
            raise CheckpointError(f"{source} differ from those of the model in: {odd}")
        with torch.no_grad():
            for name, parameter in parameters.items():
                if weights[name].shape != parameter.shape:
                    raise CheckpointError(
                        f"{source}: {name!r} is {tuple(weights[name].shape)}; "
                        f"it must be {tuple(parameter.shape)}"
                    )
                parameter.copy_(weights[name])
        return cls(model, corpus.vocabulary, corpus.tokenizer())

    def save_published(self, options_json: Path | str, weights_hdf5: Path | str) -> None:
        """Write the published pair of files."""
        save_published(self.model, Path(options_json), Path(weights_hdf5))

    @classmethod
    def from_pretrained(cls, directory: Path | str) -> PretrainedBiLm:
        """Read a model directory."""
        directory = Path(directory)
        if not directory.is_dir():
            raise CheckpointError(
                f"there is no model directory {directory}; a model is a directory with "
                f"{CONFIG_FILE} and {WEIGHTS_FILE}"
            )
        tree = read_json(directory / CONFIG_FILE, CheckpointError)
        description = parse_section(
            _Description, tree, str(directory / CONFIG_FILE), CheckpointError
        )
        if description.vocabulary_size is None and (
            description.has_softmax or description.model.characters is None
        ):
            raise CheckpointError(f"{directory / CONFIG_FILE}: vocabulary_size is needed here")
        model = shape_only_model(description.model, description.vocabulary_size)
        if not description.has_softmax:
            model.softmax = None
        model = _filled(model, directory / WEIGHTS_FILE)
        vocabulary = None
        if (directory / VOCABULARY_FILE).exists():
            vocabulary = Vocabulary.read(directory / VOCABULARY_FILE)
            if description.vocabulary_size not in (None, len(vocabulary)):
                raise CheckpointError(
                    f"{directory / VOCABULARY_FILE} has {len(vocabulary):,} words; "
                    f"{CONFIG_FILE} says {description.vocabulary_size:,}"
                )
        tokenizer = None
        if description.tokenizer is not None:
            tokenizer = load_tokenizer(description.tokenizer, directory)
        return cls(model, vocabulary, tokenizer)

    def save_pretrained(self, directory: Path | str, overwrite: bool = False) -> None:
        """Write a model directory; an existing one is refused unless `overwrite`."""
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
        _refuse_stranger(Path(directory))
        needed = sum(tensor.nbytes for tensor in tensors.values())
        with atomic_directory(Path(directory), CheckpointError, overwrite, needed) as temporary:
            save_tensors(tensors, temporary / WEIGHTS_FILE)
            write_text(temporary / CONFIG_FILE, json.dumps(description, indent=2) + "\n")
            if self.vocabulary is not None:
                self.vocabulary.write(temporary / VOCABULARY_FILE)
            if self.tokenizer is not None:
                self.tokenizer.save(temporary)


def _refuse_stranger(directory: Path) -> None:
    """Overwriting is for models: whatever else stands there is the user's."""
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return
    try:
        tree = read_json(directory / CONFIG_FILE, CheckpointError)
    except CheckpointError:
        tree = None
    if not isinstance(tree, dict) or tree.get("format") != "bilm-model":
        raise CheckpointError(
            f"{directory} exists and is no model directory, so it is not replaced; choose another "
            "place"
        )


def _filled(model: BiLm, path: Path) -> BiLm:
    """`model` with the weights at `path`; memory is taken once all names and shapes are right."""
    if not path.exists():
        raise CheckpointError(f"there is no weight file {path}")
    open_regular(path, CheckpointError).close()
    parameters = dict(model.named_parameters())
    try:
        with safe_open(path, framework="pt") as file:
            names = set(file.keys())
            for problem, odd in (
                ("lacks", sorted(set(parameters) - names)),
                ("has, beyond the model,", sorted(names - set(parameters))),
            ):
                if odd:
                    raise CheckpointError(f"{path} {problem} {', '.join(odd[:5])}")
            for name, parameter in parameters.items():
                described = file.get_slice(name)
                shape, dtype = tuple(described.get_shape()), described.get_dtype()
                if shape != tuple(parameter.shape) or dtype != "F32":
                    raise CheckpointError(
                        f"{path}: {name!r} is {dtype} {shape}; "
                        f"it must be F32 {tuple(parameter.shape)}"
                    )
            model = allocate(model)
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    parameter.copy_(file.get_tensor(name))
            return model
    except (SafetensorError, OSError) as e:
        raise CheckpointError(f"{path} is not a whole safetensors file: {e}") from None


BEST_MODEL_DIRECTORY = "best"

CHECKPOINTS_DIRECTORY = "checkpoints"


def load_source(path: Path) -> PretrainedBiLm:
    """The model at `path`, whichever of the three kinds it is."""
    if (path / BEST_MODEL_DIRECTORY).is_dir():
        return PretrainedBiLm.from_pretrained(path / BEST_MODEL_DIRECTORY)
    if (path / CHECKPOINTS_DIRECTORY).is_dir():
        raise ConfigError(
            f"the run {path} has no best model yet: no held-out evaluation has been done; "
            "launch/export.py --which newest makes a model of its newest checkpoint"
        )
    if (path / "options.json").is_file():
        vocabulary = path / "vocab.txt"
        return PretrainedBiLm.from_published(
            path / "options.json",
            path / "weights.hdf5",
            vocabulary if vocabulary.is_file() else None,
        )
    if (path / CONFIG_FILE).is_file():
        return PretrainedBiLm.from_pretrained(path)
    raise ConfigError(
        f"{path} is neither a run with a {BEST_MODEL_DIRECTORY}/ model, nor a model directory with "
        f"{CONFIG_FILE}, nor a directory with options.json and weights.hdf5"
    )
