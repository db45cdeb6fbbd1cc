"""The settings and flags of `downstream.coref`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from bilm.files.sections import Name, PositiveInt, Section, Share
from downstream.settings.common import TrainingSettings
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
from downstream.settings.ranges import Count, Width
from downstream.settings.word_heads import WordHeadSettings, WordTaskSettings

COREF_FILE = "coref.json"  # the description of a saved head

DEFAULT_COREF_EPOCHS = 12
DEFAULT_COREF_BATCH_SIZE = 1
DEFAULT_COREF_LEARNING_RATE = 1e-3


class CorefDataSettings(Section):
    """The files of documents."""

    train: Name = Field(description="training documents, plain or compressed")
    test: Name = Field(description="test documents")
    validation: Name | None = Field(
        None, description="documents for early stopping (default: a share of the training file)"
    )
    validation_share: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.1,
        description="share of the training documents, taken from the end of the file, to use for "
        "validation if no validation file is given",
    )
    format: Literal["jsonl", "conll"] | None = Field(
        None,
        description="jsonl, or conll for the columns of CoNLL-2012 (default: conll for names that "
        "end in .conll or _conll, also compressed, else jsonl)",
    )
    singletons: bool | None = Field(
        None,
        description="predict and score clusters of one mention (default: if the training file has "
        "them); without them, they are removed from all files",
    )
    max_training_words: PositiveInt = Field(
        1500, description="longer training documents are cut between sentences"
    )
    window_words: PositiveInt = Field(
        4000,
        description="longer documents are predicted in windows of this size, each of which "
        "overlaps half of the one before it; this bounds the memory",
    )


class CorefHeadSettings(WordHeadSettings):
    """The network that maps the vectors of the words of a document to clusters."""

    encoder_dim: Width = Field(100, description="units per direction of the biLSTM")
    encoder_layers: Annotated[int, Field(ge=1, le=8)] = Field(
        1, description="number of layers of the biLSTM"
    )
    hidden_dim: Width = Field(
        100, description="width of the vector of a span, and of the hidden layers of the scorers"
    )
    dropout: Share = Field(
        0.3, description="dropout rate of the inputs and outputs of the biLSTM and of the scorers"
    )
    max_span_words: Annotated[int, Field(ge=1, le=100)] = Field(
        15, description="maximum number of words of a mention"
    )
    spans_per_word: Annotated[float, Field(gt=0, le=10)] = Field(
        0.4, description="number of spans to keep as possible mentions, per word of a document"
    )
    max_antecedents: Width = Field(
        30, description="number of antecedents to keep for each span after the coarse score"
    )


class CorefTrainingSettings(TrainingSettings):
    """How a coreference resolver is trained."""

    epochs: Count | None = Field(
        None, description=f"maximum number of epochs (default: {DEFAULT_COREF_EPOCHS})"
    )
    patience: Count = Field(
        4, description="stop after this many epochs without a better validation score"
    )
    batch_size: Count | None = Field(
        None, description=f"documents per step (default: {DEFAULT_COREF_BATCH_SIZE})"
    )
    learning_rate: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description=f"peak learning rate; it decays to 0 (default: {DEFAULT_COREF_LEARNING_RATE})",
    )


class CorefSettings(WordTaskSettings):
    """The settings of `downstream.coref`."""

    default_epochs: ClassVar[int] = DEFAULT_COREF_EPOCHS
    default_batch_size: ClassVar[int] = DEFAULT_COREF_BATCH_SIZE
    default_learning_rate: ClassVar[float] = DEFAULT_COREF_LEARNING_RATE

    data: CorefDataSettings
    head: CorefHeadSettings = CorefHeadSettings()
    train: CorefTrainingSettings = CorefTrainingSettings()


COREF_FLAGS = FlagSet(
    CorefSettings,
    (
        *OUTPUT_FLAGS,
        *VALIDATION_FLAGS,
        Flag("--format", "data.format"),
        Flag("--singletons", "data.singletons", None),
        Flag("--max-training-words", "data.max_training_words", int),
        Flag("--window-words", "data.window_words", int),
        *MIX_FLAGS,
        Flag("--encoder-dim", "head.encoder_dim", int),
        Flag("--encoder-layers", "head.encoder_layers", int),
        Flag("--hidden-dim", "head.hidden_dim", int),
        Flag("--dropout", "head.dropout", float),
        Flag("--max-span-words", "head.max_span_words", int),
        Flag("--spans-per-word", "head.spans_per_word", float),
        Flag("--max-antecedents", "head.max_antecedents", int),
        *CHARACTER_FLAGS,
        *VECTOR_FLAGS,
        *TRAINING_FLAGS,
    ),
)
