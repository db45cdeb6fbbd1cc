"""A trained biLM together with its vocabulary and tokenizer, and the model directory on disk.

A model directory is self-contained: `config.json` (the model section, the tokenizer),
`model.safetensors` (the weights), `vocab.txt` (the words of the softmax, if there is one) and, for
sentencepiece, `tokenizer.model`. An exported model also has `README.md` (its card) and
`checksums.json`. A model contains nothing executable, and every file is checked when it is read.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from bilm.errors import CheckpointError, ConfigError, CorpusError
from bilm.files.writing import atomic_directory, write_text
from bilm.model.config import ModelConfig
from bilm.model.language_model import BiLm, allocate, shape_only_model
from bilm.pretrained.archives import extracted
from bilm.pretrained.checksums import verify_checksums, write_checksums
from bilm.pretrained.file_names import (
    BEST_MODEL_DIRECTORY,
    CARD_FILE,
    CHECKPOINTS_DIRECTORY,
    CONFIG_FILE,
    NLPL_WEIGHTS_FILE,
    OPTIONS_FILE,
    PUBLISHED_WEIGHTS_FILE,
    VOCABULARY_FILE,
    WEIGHTS_FILE,
    WeightType,
)
from bilm.pretrained.hub import upload
from bilm.pretrained.locations import locate
from bilm.pretrained.model_files import (
    check_replaceable,
    read_description,
    read_weights,
    stored_weights,
    write_description,
    write_weights,
)
from bilm.pretrained.named_models import MODELS
from bilm.text.tokenizers import Tokenizer, load_tokenizer
from bilm.text.vocabulary import Vocabulary

logger = logging.getLogger(__name__)


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
        .zip file of such a directory. It may also be the name of a model that comes with bilm
        (`bilm models` lists them), or a repository of the Hugging Face Hub, such as "owner/name".
        An invalid vocabulary is ignored if the model has no softmax and reads characters.
        """
        location = locate(path)
        if location.checksums_digest is not None:
            return cls.from_pretrained(path)
        path = location.path
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
            f"{PUBLISHED_WEIGHTS_FILE} or {NLPL_WEIGHTS_FILE}, nor one of the models of bilm "
            f"({', '.join(MODELS)})"
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
        """Read a model directory, or a model by its name; see `open` for names."""
        location = locate(directory)
        directory = location.path
        if not directory.is_dir():
            raise CheckpointError(
                f"the model directory {directory} does not exist; a model is a directory with "
                f"{CONFIG_FILE} and {WEIGHTS_FILE}"
            )
        verify_checksums(directory, location.checksums_digest)
        description = read_description(directory / CONFIG_FILE)
        tokenizer = None
        if description.tokenizer is not None:
            tokenizer = load_tokenizer(description.tokenizer, directory)
        model = shape_only_model(description.model, description.vocabulary_size)
        if not description.has_softmax:
            model = model.without_softmax()
        model = read_weights(model, directory / WEIGHTS_FILE)
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

    def save_pretrained(
        self,
        directory: Path | str,
        overwrite: bool = False,
        dtype: WeightType = "float32",
        card: str | None = None,
        push_to_hub: str | None = None,
    ) -> None:
        """Write a model directory with a card and checksums.

        Args:
            directory: an existing model is rejected unless `overwrite` is set; any other directory
                with files is always rejected.
            overwrite: replace an existing model.
            dtype: "float16" almost halves the size and rounds the weights.
            card: the content of README.md; by default, what the model itself tells.
            push_to_hub: a repository of the Hugging Face Hub, such as "owner/name", to which the
                files are written too.
        """
        from bilm.pretrained.model_card import Card

        directory = Path(directory)
        name = (push_to_hub or directory.resolve().name).rpartition("/")[2]
        card = card if card is not None else Card(self, name).text()
        self._save(directory, overwrite, stored_weights(self.model, dtype), card)
        if push_to_hub is not None:
            upload(directory, push_to_hub)

    def save_files(self, directory: Path, overwrite: bool = False) -> None:
        """Write a model directory without a card and checksums, as the best model of a run."""
        self._save(directory, overwrite, stored_weights(self.model, "float32"), None)

    def _save(
        self, directory: Path, overwrite: bool, weights: dict[str, Tensor], card: str | None
    ) -> None:
        check_replaceable(directory)
        needed = sum(tensor.nbytes for tensor in weights.values())
        with atomic_directory(directory, CheckpointError, overwrite, needed) as temporary:
            write_weights(weights, temporary / WEIGHTS_FILE)
            tokenizer = self.tokenizer.spec.to_json() if self.tokenizer is not None else None
            write_description(self.model, tokenizer, temporary / CONFIG_FILE)
            if self.vocabulary is not None:
                self.vocabulary.write(temporary / VOCABULARY_FILE)
            if self.tokenizer is not None:
                self.tokenizer.save(temporary)
            if card is not None:
                write_text(temporary / CARD_FILE, card)
                write_checksums(temporary)
