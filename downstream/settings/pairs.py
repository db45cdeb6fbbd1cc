"""The settings and flags of `downstream.pair`."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from bilm.files.sections import Name, Share
from downstream.settings.common import TrainingSettings, UnknownLabels
from downstream.settings.flags import (
    CHARACTER_FLAGS,
    MIX_FLAGS,
    OUTPUT_FLAGS,
    TABLE_FLAGS,
    TRAINING_FLAGS,
    VALIDATION_FLAGS,
    VECTOR_FLAGS,
    Flag,
    FlagSet,
)
from downstream.settings.ranges import BatchSize, Count, Width
from downstream.settings.sections import TableSettings
from downstream.settings.word_heads import WordHeadSettings, WordTaskSettings

DEFAULT_PAIR_EPOCHS = 6
DEFAULT_PAIR_BATCH_SIZE = 32
DEFAULT_PAIR_LEARNING_RATE = 2e-3


PAIR_FILE = "pair_classifier.json"  # in the directory of a trained head

FIRST_COLUMN = "sentence1"
SECOND_COLUMN = "sentence2"


class PairDataSettings(TableSettings, UnknownLabels):
    """The labelled pairs of texts."""

    train: Name = Field(
        description="training pairs: .csv, .tsv, .jsonl, .json, also compressed, or .parquet"
    )
    test: Name = Field(description="test pairs")
    validation: Name | None = Field(
        None, description="pairs for early stopping (default: a share of the training pairs)"
    )
    validation_share: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.1,
        description="share of the training pairs to use for validation if no validation file is "
        "given; pairs with the same first text stay together",
    )
    first_column: Name = Field(
        FIRST_COLUMN, description="name or number (from 1) of the column of first texts"
    )
    second_column: Name = Field(
        SECOND_COLUMN, description="name or number (from 1) of the column of second texts"
    )


class PairHeadSettings(WordHeadSettings):
    """The network that compares two texts."""

    characters: bool | None = Field(
        False, description="add features of the characters of each word, computed by a CNN"
    )
    encoder_dim: Width = Field(
        100, description="units per direction of both biLSTMs, and width of the layer between them"
    )
    hidden_dim: Width = Field(100, description="width of the hidden layer before the output")
    shortcut: bool = Field(
        True,
        description="concatenate the word vectors and the characters also with the outputs of the "
        "first biLSTM, so that the attention compares words directly",
    )
    dropout: Share = Field(0.2, description="dropout rate of the inputs of all layers")

    @property
    def hidden(self) -> int:
        """The width of the hidden layer before the output."""
        return self.hidden_dim


class PairTrainingSettings(TrainingSettings):
    """How a pair classifier is trained."""

    epochs: Count | None = Field(
        None, description=f"maximum number of epochs (default: {DEFAULT_PAIR_EPOCHS})"
    )
    batch_size: BatchSize | None = Field(
        None,
        description=f"pairs per step (default: {DEFAULT_PAIR_BATCH_SIZE}, fewer for small data "
        "sets)",
    )
    learning_rate: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description=f"peak learning rate; it decays to 0 (default: {DEFAULT_PAIR_LEARNING_RATE})",
    )


class PairSettings(WordTaskSettings):
    """The settings of `downstream.pair`."""

    default_epochs = DEFAULT_PAIR_EPOCHS
    default_batch_size = DEFAULT_PAIR_BATCH_SIZE
    default_learning_rate = DEFAULT_PAIR_LEARNING_RATE

    data: PairDataSettings
    head: PairHeadSettings = PairHeadSettings()
    train: PairTrainingSettings = PairTrainingSettings()

    @model_validator(mode="after")
    def _check_tokenizer(self) -> Self:
        if self.model is None and not self.data.tokenized:
            raise ValueError(
                "model is missing, whose tokenizer splits the texts; set it, or set data.tokenized "
                "if the words of all texts are separated by spaces"
            )
        return self


PAIR_FLAGS = FlagSet(
    PairSettings,
    (
        *OUTPUT_FLAGS,
        *VALIDATION_FLAGS,
        Flag("--first-column", "data.first_column"),
        Flag("--second-column", "data.second_column"),
        *TABLE_FLAGS,
        Flag("--unknown-labels", "data.unknown_labels"),
        *MIX_FLAGS,
        Flag("--encoder-dim", "head.encoder_dim", int),
        Flag("--hidden-dim", "head.hidden_dim", int),
        Flag("--shortcut", "head.shortcut", None),
        Flag("--dropout", "head.dropout", float),
        *CHARACTER_FLAGS,
        *VECTOR_FLAGS,
        *TRAINING_FLAGS,
    ),
)
