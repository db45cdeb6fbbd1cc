"""Settings of the downstream commands: a JSON file, flags, or both (flags override the file).

Settings are checked as strictly as the training configuration, before torch is imported: unknown
and misspelled keys, wrong types and values out of range are all reported in one `ConfigError`.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from bilm.errors import ConfigError
from bilm.files.sections import Name, PositiveInt, Section, Share
from bilm.text.tables import Format as Format
from downstream.settings.common import MixSettings as MixSettings
from downstream.settings.common import TaskSettings, WordVectorSettings
from downstream.settings.common import TrainingSettings as TrainingSettings
from downstream.settings.common import batch_size_for as batch_size_for
from downstream.settings.ranges import MAX_WIDTH, Count, Width

HeadKind = Literal["mean", "max", "mean_max", "attention", "bilstm", "gru"]

TargetKind = Literal["class", "multilabel", "regression"]

LongTexts = Literal["windows", "cut"]

CLASSIFIER_FILE = "classifier.json"  # the description of a saved head

POOLED_HEADS = ("mean", "max", "mean_max")
RECURRENT_HEADS = ("bilstm", "gru")

# Chosen by experiments on AG News.
DEFAULT_LEARNING_RATE = {"pooled": 3e-3, "words": 1e-3}
DEFAULT_BATCH_SIZE = {"pooled": 512, "words": 64}
DEFAULT_HIDDEN_DIM = {"pooled": 256, "words": 0}
DEFAULT_EPOCHS = {"pooled": 12, "words": 6}

DEFAULT_MAX_WORDS = 400
DEFAULT_LONG_TEXTS: LongTexts = "windows"
DEFAULT_VALIDATION_SHARE = 0.1


class TableSettings(Section):
    """How files of labelled texts are read."""

    label_column: Name = Field("label", description="name or number (from 1) of the label column")
    format: Format | None = Field(None, description="file format (default: by file extension)")
    header: bool | None = Field(
        None, description="whether files have a header (default: if a column is given by name)"
    )
    tokenized: bool = Field(
        False, description="the texts are tokenized, with spaces between words; skip the tokenizer"
    )
    max_words: PositiveInt = Field(DEFAULT_MAX_WORDS, description="longer texts are truncated")


class DataSettings(TableSettings):
    """The labelled texts."""

    train: Name = Field(
        description="training texts: .csv, .tsv, .jsonl, .json, .txt, also compressed, or .parquet"
    )
    test: Name = Field(description="test texts")
    validation: Name | None = Field(
        None, description="texts for early stopping (default: a share of the training texts)"
    )
    validation_share: Annotated[float, Field(gt=0, lt=1)] = Field(
        DEFAULT_VALIDATION_SHARE,
        description="share of each class of the training texts to use for validation if no "
        "validation file is given",
    )
    text_columns: Annotated[tuple[Name, ...], Field(min_length=1)] = Field(
        ("text",),
        description="comma-separated names or numbers of the text columns; joined with spaces",
    )
    max_words: PositiveInt = Field(
        DEFAULT_MAX_WORDS, description="words that the biLM reads at once; see --long-texts"
    )
    long_texts: LongTexts = Field(
        DEFAULT_LONG_TEXTS,
        description="read texts of more than --max-words words in several windows (windows), or "
        "truncate them (cut)",
    )


def _check_threshold(value: Any) -> Any:
    is_number = isinstance(value, int | float)
    if value == "validation" or (is_number and 0 < value < 1):
        return value
    shown = value if is_number else json.dumps(value)
    raise ValueError(f'--threshold is {shown}; it must be above 0 and below 1, or "validation"')


# The probability from which on a label is predicted.
Threshold = Annotated[float | Literal["validation"], BeforeValidator(_check_threshold)]


class TargetSettings(Section):
    """What is predicted for a text."""

    kind: TargetKind = Field(
        "class",
        description="what is predicted: one class per text, any number of labels (multilabel), or "
        "a number (regression)",
    )
    separator: Name = Field("|", description="separator of the labels of a text, for multilabel")
    threshold: Threshold = Field(
        0.5,
        description="a label with at least this probability is predicted, for multilabel; "
        "`validation` chooses it on the validation texts",
    )

    @model_validator(mode="after")
    def _check_multilabel(self) -> Self:
        for flag, name in (("--threshold", "threshold"), ("--label-separator", "separator")):
            is_default = getattr(self, name) == type(self).model_fields[name].default
            if self.kind != "multilabel" and not is_default:
                raise ValueError(
                    f"{flag} is for --target multilabel, but the target is {self.kind}; remove it"
                )
        return self


class HeadSettings(WordVectorSettings):
    """The network that maps the vectors of a text's words to a class."""

    kind: HeadKind = Field(
        "mean_max", description="pooling (mean, max, mean_max, attention) or encoder (bilstm, gru)"
    )
    hidden_dim: Annotated[int, Field(ge=0, le=MAX_WIDTH)] | None = Field(
        None,
        description="width of a hidden layer before the output; 0 for none (default: 256 for "
        "mean, max and mean_max, none for the others)",
    )
    encoder_dim: Width = Field(
        128, description="units per direction of bilstm and gru; width of attention"
    )
    dropout: Share = Field(0.3, description="dropout rate of the text's vector")
    elmo_at: Literal["input", "output", "both"] = Field(
        "input",
        description="concatenate a mix with the input or output of bilstm and gru, or with both",
    )

    @property
    def hidden(self) -> int:
        """The width of the hidden layer: the given one, or the default of this head."""
        return DEFAULT_HIDDEN_DIM[self.mode] if self.hidden_dim is None else self.hidden_dim

    @property
    def mode(self) -> Literal["pooled", "words"]:
        """Whether the head reads pooled layers or the layers of every word."""
        return "pooled" if self.kind in POOLED_HEADS else "words"

    @model_validator(mode="after")
    def _check_elmo_at(self) -> HeadSettings:
        if self.elmo_at != "input" and self.kind not in RECURRENT_HEADS:
            raise ValueError(
                f"head.elmo_at is {self.elmo_at!r}, but the head {self.kind!r} has no encoder; set "
                "it to 'input', or use the head bilstm or gru"
            )
        if self.elmo_at == "output" and self.vectors is None:
            raise ValueError("head.elmo_at is 'output', which needs word vectors; set head.vectors")
        return self


class FineTuneSettings(Section):
    """Training of the biLM as a language model on the task's texts, before it is frozen."""

    enabled: bool = Field(False, description="fine-tune the biLM on the training texts first")
    epochs: Count = Field(1, description="epochs over the training texts")
    learning_rate: Annotated[float, Field(gt=0)] = Field(
        0.05, description="learning rate of Adagrad, the optimizer of fine-tuning"
    )
    batch_size: Count = Field(32, description="number of rows of the batch")
    heldout_share: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.02, description="share of the texts held out to measure perplexity before and after"
    )


class HeadTraining(Section):
    """The settings that determine how one head is trained; the defaults depend on the head."""

    mix: MixSettings = MixSettings()
    head: HeadSettings = HeadSettings()
    train: TrainingSettings = TrainingSettings()

    @model_validator(mode="after")
    def _check_sections(self) -> Self:
        check_mix_and_head(self.mix, self.head)
        return self

    @property
    def epochs(self) -> int:
        """The maximum number of epochs."""
        return self.train.epochs or DEFAULT_EPOCHS[self.head.mode]

    @property
    def learning_rate(self) -> float:
        """The peak learning rate."""
        return self.train.learning_rate or DEFAULT_LEARNING_RATE[self.head.mode]

    def batch_size(self, num_texts: int) -> int:
        """Return the number of texts per step; the default is smaller for small data sets."""
        usual = DEFAULT_BATCH_SIZE[self.head.mode]
        return self.train.batch_size or batch_size_for(num_texts, usual)


class BaselineSettings(TaskSettings):
    """The settings of `downstream.baselines`: an experiment in which a biLM is optional."""

    data: DataSettings
    target: TargetSettings = TargetSettings()
    head: HeadSettings = HeadSettings()
    finetune: FineTuneSettings = FineTuneSettings()

    @model_validator(mode="after")
    def _check_sections(self) -> Self:
        check_mix_and_head(self.mix, self.head)
        return self

    def reject_finetune(self) -> None:
        """Raise ConfigError if fine-tuning is enabled; only `downstream.classify` supports it."""
        if self.finetune.enabled:
            raise ConfigError(
                "--finetune is supported only by downstream.classify; run that first, and pass "
                "its fine-tuned model as --model"
            )

    def reject_other_targets(self) -> None:
        """Raise ConfigError unless texts have classes; only `downstream.classify` has others."""
        if self.target.kind != "class":
            raise ConfigError(
                f"--target is {self.target.kind}; it is supported only by downstream.classify"
            )

    def without_vectors(self) -> Self:
        """Return the same settings without word vectors, for comparisons of the biLM alone."""
        if "none" in self.mix.kinds or self.head.elmo_at == "output":
            raise ConfigError(
                "this comparison uses the biLM without word vectors; remove --mix none and "
                "--elmo-at output"
            )
        head = self.head.model_copy(update={"vectors": None})
        return self.model_copy(update={"head": head})


class Settings(BaselineSettings):
    """The settings of an experiment on a biLM."""

    missing_keys: ClassVar[dict[str, str]] = {
        "model": "the mix none needs it too, because heads read texts with its tokenizer. Pass a "
        "run, a model, or its name"
    }

    model: Name = Field(description="a run, a model, or its name")

    @property
    def head_training(self) -> HeadTraining:
        """The sections that concern the training of a head."""
        return HeadTraining(mix=self.mix, head=self.head, train=self.train)

    def with_target_defaults(self) -> Self:
        """Return the settings with the default dropout of the mix for the target."""
        if self.target.kind != "regression" or "dropout" in self.mix.model_fields_set:
            return self
        return self.model_copy(update={"mix": regression_mix(self.mix)})


def regression_mix(mix: MixSettings) -> MixSettings:
    """Return the mix without dropout, the default for regression.

    Pooled heads standardize the mix. Dropout before that hides small differences between texts: on
    200 texts, R^2 on the training texts was 0.06 with a dropout of 0.1, and 0.72 without.
    """
    return mix.model_copy(update={"dropout": 0.0})


def check_mix_and_head(mix: MixSettings, head: HeadSettings) -> None:
    """Raise ValueError if a head would have no input."""
    if "none" in mix.kinds and head.vectors is None:
        raise ValueError("mix.kinds contains 'none', which needs word vectors; set head.vectors")
    if "none" in mix.kinds and head.elmo_at != "input":
        raise ValueError(
            f"mix.kinds contains 'none', but head.elmo_at is {head.elmo_at!r}; set it to 'input'"
        )
