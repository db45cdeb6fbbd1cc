"""The published `options.json`: read it as a model configuration, and write it from one.

`n_characters` is 262 in files for users and 261 in files from training; both describe the same
model.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from bilm.errors import CheckpointError
from bilm.files.sections import Section, parse_section
from bilm.model.config import (
    CharacterConfig,
    LstmConfig,
    ModelConfig,
    SoftmaxConfig,
    VocabularySize,
)
from bilm.text.characters import NUM_CHARACTERS, SHIFT


class _LstmOptions(Section):
    dim: int
    projection_dim: int
    n_layers: int = 1
    cell_clip: float | None = None
    proj_clip: float | None = None
    use_skip_connections: bool | None = False


class _EmbeddingOptions(Section):
    dim: int


class _CharCnnOptions(Section):
    activation: Literal["relu", "tanh"]
    embedding: _EmbeddingOptions
    filters: tuple[tuple[int, int], ...]
    max_characters_per_token: int
    n_characters: int = Field(ge=NUM_CHARACTERS, le=NUM_CHARACTERS + SHIFT)
    n_highway: int | None = 0


class _Options(BaseModel):
    """The part of options.json that defines the model; the rest describes a training run."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, allow_inf_nan=False)
    lstm: _LstmOptions
    char_cnn: _CharCnnOptions | None = None
    bidirectional: bool = True
    dropout: float = 0.1
    n_tokens_vocab: VocabularySize | None = None
    n_negative_samples_batch: int = 8192
    sample_softmax: bool = True
    share_embedding_softmax: bool = False


def model_config_from_options(tree: Any, source: str) -> tuple[ModelConfig, int | None]:
    """Return the model configuration of published options, and the vocabulary size if given.

    `source` names the options in errors.
    """
    options = parse_section(_Options, tree, source, CheckpointError)
    lstm, characters = options.lstm, None
    if options.char_cnn is not None:
        cnn = options.char_cnn
        characters = {
            "embedding_dim": cnn.embedding.dim,
            "filters": cnn.filters,
            "num_highway": cnn.n_highway or 0,
            "activation": cnn.activation,
            "max_characters": cnn.max_characters_per_token,
        }
    model = {
        "characters": characters,
        "lstm": {
            "dim": lstm.dim,
            "projection_dim": lstm.projection_dim,
            "num_layers": lstm.n_layers,
            "cell_clip": lstm.cell_clip,
            "projection_clip": lstm.proj_clip,
            "skip_connections": bool(lstm.use_skip_connections),
        },
        "softmax": {
            "kind": "sampled" if options.sample_softmax else "full",
            "num_negatives": options.n_negative_samples_batch,
            "tied_to_input": options.share_embedding_softmax,
        },
        "dropout": options.dropout,
        "bidirectional": options.bidirectional,
    }
    # This checks the values a second time, by the rules of the model section: ranges, filters no
    # wider than a word, and so on.
    return parse_section(ModelConfig, model, source, CheckpointError), options.n_tokens_vocab


def options_from_model_config(config: ModelConfig, vocabulary_size: int | None) -> dict[str, Any]:
    """Return the published options of a model."""
    lstm: LstmConfig = config.lstm
    options: dict[str, Any] = {
        "bidirectional": config.bidirectional,
        "dropout": config.dropout,
        "lstm": {
            "dim": lstm.dim,
            "projection_dim": lstm.projection_dim,
            "n_layers": lstm.num_layers,
            "cell_clip": lstm.cell_clip,
            "proj_clip": lstm.projection_clip,
            "use_skip_connections": lstm.skip_connections,
        },
    }
    if config.characters is not None:
        cnn: CharacterConfig = config.characters
        options["char_cnn"] = {
            "activation": cnn.activation,
            "embedding": {"dim": cnn.embedding_dim},
            "filters": [list(pair) for pair in cnn.filters],
            "max_characters_per_token": cnn.max_characters,
            # The number of shifted ids, which every reader of these files expects.
            "n_characters": NUM_CHARACTERS + SHIFT,
            "n_highway": cnn.num_highway,
        }
    if vocabulary_size is not None:
        softmax: SoftmaxConfig = config.softmax
        options["n_tokens_vocab"] = vocabulary_size
        options["n_negative_samples_batch"] = softmax.num_negatives
        options["sample_softmax"] = softmax.kind == "sampled"
        options["share_embedding_softmax"] = softmax.tied_to_input
    return options
