"""The settings and flags of `downstream.span`."""

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
from downstream.settings.ranges import BatchSize, Count, Width
from downstream.settings.word_heads import WordHeadSettings, WordTaskSettings

ANSWERER_FILE = "answerer.json"  # the description of a saved head

DEFAULT_SPAN_EPOCHS = 5
DEFAULT_SPAN_BATCH_SIZE = 6
DEFAULT_SPAN_LEARNING_RATE = 2e-3

PlainTokenizer = Literal["moses", "whitespace"]


class SpanDataSettings(Section):
    """The files of passages, questions and answers."""

    train: Name = Field(
        description="training passages: .json (SQuAD) or .jsonl (one passage per line), plain or "
        "compressed"
    )
    test: Name = Field(description="test passages")
    validation: Name | None = Field(
        None, description="passages for early stopping (default: a share of the training passages)"
    )
    validation_share: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.1,
        description="share of the training passages, taken from the end of the file, to use for "
        "validation if no validation file is given",
    )
    format: Literal["squad", "jsonl"] | None = Field(
        None, description="file format (default: squad for .json files, jsonl for .jsonl files)"
    )
    skip_unanswerable: bool = Field(
        False,
        description="leave out questions without an answer (is_impossible in SQuAD 2.0), which are "
        "otherwise rejected",
    )
    train_questions: Count | None = Field(
        None,
        description="train on a random selection of passages with about this many questions "
        "(default: all)",
    )
    tokenizer: PlainTokenizer = Field(
        "moses", description="tokenizer without --model; a biLM has its own tokenizer"
    )


class SpanHeadSettings(WordHeadSettings):
    """The network that finds the answer to a question in a passage."""

    encoder_dim: Width = Field(
        64, description="units per direction of the biLSTM over passages and questions"
    )
    span_dim: Width = Field(
        32, description="units per direction of each of the two biLSTMs after the attention"
    )
    dropout: Share = Field(0.2, description="dropout rate of the inputs of each layer")
    max_words: Annotated[int, Field(ge=2)] = Field(
        400,
        description="longer passages are read in windows of this many words, which overlap by half",
    )
    max_answer_words: PositiveInt = Field(
        30, description="maximum number of words of a predicted answer"
    )


class SpanTrainingSettings(TrainingSettings):
    """How a head is trained."""

    epochs: Count | None = Field(
        None, description=f"maximum number of epochs (default: {DEFAULT_SPAN_EPOCHS})"
    )
    patience: Count = Field(
        2, description="stop after this many epochs without a better validation F1"
    )
    batch_size: BatchSize | None = Field(
        None,
        description="passages per step, each with at most 8 of its questions (default: "
        f"{DEFAULT_SPAN_BATCH_SIZE})",
    )
    learning_rate: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description=f"peak learning rate; it decays to 0 (default: {DEFAULT_SPAN_LEARNING_RATE})",
    )


class SpanSettings(WordTaskSettings):
    """The settings of `downstream.span`."""

    default_epochs: ClassVar[int] = DEFAULT_SPAN_EPOCHS
    default_batch_size: ClassVar[int] = DEFAULT_SPAN_BATCH_SIZE
    default_learning_rate: ClassVar[float] = DEFAULT_SPAN_LEARNING_RATE

    data: SpanDataSettings
    head: SpanHeadSettings = SpanHeadSettings()
    train: SpanTrainingSettings = SpanTrainingSettings()


SPAN_FLAGS = FlagSet(
    SpanSettings,
    (
        *OUTPUT_FLAGS,
        *VALIDATION_FLAGS,
        Flag("--format", "data.format"),
        Flag("--skip-unanswerable", "data.skip_unanswerable", None),
        Flag("--train-questions", "data.train_questions", int),
        Flag("--tokenizer", "data.tokenizer"),
        *MIX_FLAGS,
        Flag("--encoder-dim", "head.encoder_dim", int),
        Flag("--span-dim", "head.span_dim", int),
        Flag("--dropout", "head.dropout", float),
        *CHARACTER_FLAGS,
        Flag("--max-words", "head.max_words", int),
        Flag("--max-answer-words", "head.max_answer_words", int),
        *VECTOR_FLAGS,
        *TRAINING_FLAGS,
    ),
)
