"""The settings and flags of `downstream.tag`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from bilm.files.sections import Name, PositiveInt, Share
from downstream.settings.common import TrainingSettings, UnknownLabels
from downstream.settings.flags import (
    CHARACTER_FLAGS,
    MIX_FLAGS,
    OUTPUT_FLAGS,
    TRAINING_FLAGS,
    VALIDATION_FLAGS,
    VECTOR_FLAGS,
    Flag,
    FlagSet,
)
from downstream.settings.ranges import BatchSize, Count, Width
from downstream.settings.word_heads import WordHeadSettings, WordTaskSettings

TAGGER_FILE = "tagger.json"  # the description of a saved head

DEFAULT_TAG_EPOCHS = 15
DEFAULT_TAG_BATCH_SIZE = 32
DEFAULT_TAG_LEARNING_RATE = 2e-3


class SequenceDataSettings(UnknownLabels):
    """The files of tagged sentences."""

    train: Name = Field(description="training sentences, plain or compressed")
    test: Name = Field(description="test sentences")
    validation: Name | None = Field(
        None, description="sentences for early stopping (default: a share of the training file)"
    )
    validation_share: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.1,
        description="share of the training sentences, taken from the end of the file, to use for "
        "validation if no validation file is given",
    )


class TagDataSettings(SequenceDataSettings):
    """The files of `downstream.tag` and their format."""

    format: Literal["columns", "conllu"] | None = Field(
        None, description="file format (default: conllu for .conllu files, else columns)"
    )
    word_column: PositiveInt = Field(1, description="number (from 1) of the column of words")
    tag_column: Name | None = Field(
        None,
        description="number of the column of tags, or upos or xpos in CoNLL-U (default: the last "
        "column, or upos)",
    )
    scheme: Literal["bio", "iob1", "plain"] | None = Field(
        None,
        description="bio (checked), iob1 (converted to bio), or plain for tags without spans, such "
        "as parts of speech (default: plain for CoNLL-U, else bio)",
    )


class TagHeadSettings(WordHeadSettings):
    """The network that maps the vectors of the words of a sentence to tags."""

    encoder_dim: Width = Field(128, description="units per direction of the biLSTM")
    encoder_layers: Annotated[int, Field(ge=1, le=8)] = Field(
        1, description="number of layers of the biLSTM"
    )
    dropout: Share = Field(
        0.4, description="dropout rate of the inputs and outputs of each layer of the biLSTM"
    )
    crf: bool = Field(
        True,
        description="a linear-chain CRF; without it, words are classified one by one, and only "
        "decoding applies the rules of BIO",
    )


class TagTrainingSettings(TrainingSettings):
    """How a tagger is trained."""

    epochs: Count | None = Field(
        None, description=f"maximum number of epochs (default: {DEFAULT_TAG_EPOCHS})"
    )
    patience: Count = Field(
        4, description="stop after this many epochs without a better validation score"
    )
    batch_size: BatchSize | None = Field(
        None,
        description=f"sentences per step (default: {DEFAULT_TAG_BATCH_SIZE}, fewer for small data "
        "sets)",
    )
    learning_rate: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description=f"peak learning rate; it decays to 0 (default: {DEFAULT_TAG_LEARNING_RATE})",
    )


class SequenceSettings(WordTaskSettings):
    """The settings of tasks that tag sentences."""

    default_epochs = DEFAULT_TAG_EPOCHS
    default_batch_size = DEFAULT_TAG_BATCH_SIZE
    default_learning_rate = DEFAULT_TAG_LEARNING_RATE

    data: SequenceDataSettings
    head: TagHeadSettings = TagHeadSettings()
    train: TagTrainingSettings = TagTrainingSettings()


class TagSettings(SequenceSettings):
    """The settings of `downstream.tag`."""

    data: TagDataSettings


SEQUENCE_HEAD_FLAGS = (
    Flag("--encoder-dim", "head.encoder_dim", int),
    Flag("--encoder-layers", "head.encoder_layers", int),
    Flag("--dropout", "head.dropout", float),
    Flag("--crf", "head.crf", None),
    *CHARACTER_FLAGS,
)

SEQUENCE_FLAGS = (*MIX_FLAGS, *SEQUENCE_HEAD_FLAGS, *VECTOR_FLAGS, *TRAINING_FLAGS)

TAG_FLAGS = FlagSet(
    TagSettings,
    (
        *OUTPUT_FLAGS,
        *VALIDATION_FLAGS,
        Flag("--format", "data.format"),
        Flag("--word-column", "data.word_column", int),
        Flag("--tag-column", "data.tag_column"),
        Flag("--scheme", "data.scheme"),
        Flag("--unknown-labels", "data.unknown_labels"),
        *SEQUENCE_FLAGS,
    ),
)
