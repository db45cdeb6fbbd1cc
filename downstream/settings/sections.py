"""What `python -m downstream.classify` is told: a JSON file, flags, or both (flags win).

Checked as strictly as the training configuration, before torch is imported: unknown and misspelt
keys, wrong types and values out of range are all reported in one `ConfigError`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from bilm.errors import ConfigError
from bilm.files.sections import Name, PositiveInt, Section, Share
from bilm.text.tables import Format as Format

MIXES = "trainable, frozen, learned, average, top, layer:K, none"

MIX = re.compile(r"trainable|frozen|learned|average|top|none|layer:\d{1,3}")

Head = Literal["mean", "max", "mean_max", "attention", "bilstm", "gru"]

POOLED_HEADS = ("mean", "max", "mean_max")

RECURRENT_HEADS = ("bilstm", "gru")

# Found by trying on AG News.
DEFAULT_LEARNING_RATE = {"pooled": 3e-3, "words": 1e-3}

DEFAULT_BATCH_SIZE = {"pooled": 512, "words": 64}

DEFAULT_HIDDEN_DIM = {"pooled": 256, "words": 0}

DEFAULT_EPOCHS = {"pooled": 12, "words": 6}


class DataSettings(Section):
    """The labelled texts."""

    train: Name = Field(description="labelled texts to train on: .csv, .tsv, .jsonl, .txt, or .gz")
    test: Name = Field(description="labelled texts to test on")
    validation: Name | None = Field(
        None, description="labelled texts that decide when to stop; by default a share of train"
    )
    validation_share: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.1, description="of each class of train, when no validation file is given"
    )
    label_column: Name = Field("label", description="a name in the header, or a number from 1")
    text_columns: Annotated[tuple[Name, ...], Field(min_length=1)] = Field(
        ("text",), description="likewise; several, separated by commas, are joined by a space"
    )
    format: Format | None = Field(None, description="of all files (default: by their extensions)")
    header: bool | None = Field(
        None,
        description="whether .csv and .tsv have one (default: if a column is given by name)",
    )
    tokenized: bool = Field(
        False, description="words stand between spaces already: leave the model's tokeniser out"
    )
    max_words: PositiveInt = Field(400, description="longer texts are cut to this many words")


class MixSettings(Section):
    """How the biLM's layers become one vector per word."""

    kinds: Annotated[tuple[str, ...], Field(min_length=1)] = Field(
        ("trainable",),
        description=f"one or more of {MIXES}; several, separated by commas, are compared",
    )
    weights: tuple[float, ...] | None = Field(
        None, description="of the frozen mix, before the softmax (default: drawn by the seed)"
    )
    gamma: float = Field(1.0, description="scale of the mix: where it starts, or stays if frozen")
    penalty: Annotated[float, Field(ge=0)] = Field(
        1e-3, description="lambda of lambda * ||w||^2, which pulls towards the plain average"
    )
    layer_norm: bool = Field(
        False, description="bring each layer to mean 0 and variance 1 over the batch"
    )
    dropout: Share = Field(
        0.1, description="share of a text's mixed vectors set to zero in training"
    )
    dim: PositiveInt | None = Field(
        None, description="width that the learned mix gives (default: that of a layer)"
    )
    learning_rate: Annotated[float, Field(gt=0)] = Field(
        1e-2, description="of the weights and gamma of the trainable mix"
    )

    @field_validator("kinds")
    @classmethod
    def _known(cls, kinds: tuple[str, ...]) -> tuple[str, ...]:
        for kind in kinds:
            if not MIX.fullmatch(kind):
                raise ValueError(f"{kind!r} is no mix; known are {MIXES}")
        if len(set(kinds)) < len(kinds):
            raise ValueError(f"{', '.join(kinds)} names a mix twice")
        return kinds


class HeadSettings(Section):
    """What turns the vectors of a text's words into a class."""

    kind: Head = Field(
        "mean_max", description="pooling (mean, max, mean_max, attention) or encoder (bilstm, gru)"
    )
    hidden_dim: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="width of a hidden layer before the classes; 0 for none (default: 256 for "
        "pooled heads, none for the others)",
    )
    encoder_dim: PositiveInt = Field(128, description="units of bilstm and gru, each direction")
    dropout: Share = Field(0.3, description="share of the text's vector set to zero in training")
    vectors: Name | None = Field(
        None, description="word vectors in GloVe's format, .gz too, put beside the mix: [x; ELMo]"
    )
    unknown: Literal["mean", "zero"] = Field(
        "mean", description="the vector of a word that the file of vectors does not have"
    )
    elmo_at: Literal["input", "output", "both"] = Field(
        "input",
        description="where the mix enters bilstm and gru; both have a mix of their own",
    )

    @property
    def hidden(self) -> int:
        """Width of the hidden layer, by the user or for this kind of head."""
        return DEFAULT_HIDDEN_DIM[self.mode] if self.hidden_dim is None else self.hidden_dim

    @property
    def mode(self) -> Literal["pooled", "words"]:
        """Whether this head needs pooled layers only, or those of every word."""
        return "pooled" if self.kind in POOLED_HEADS else "words"

    @model_validator(mode="after")
    def _elmo_enters(self) -> HeadSettings:
        if self.elmo_at != "input" and self.kind not in RECURRENT_HEADS:
            raise ValueError(
                f"elmo_at is {self.elmo_at!r}, but the head {self.kind!r} has no encoder; set it "
                "to 'input', or the head to bilstm or gru"
            )
        if self.elmo_at == "output" and self.vectors is None:
            raise ValueError("elmo_at is 'output', so the encoder reads word vectors: give vectors")
        return self


class TrainingSettings(Section):
    """How a head is trained."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(
        0, description="decides the validation split, first weights, order and dropout"
    )
    num_seeds: Annotated[int, Field(ge=1, le=100)] = Field(
        1, description="heads trained per mix, from as many seeds; the mean and spread are reported"
    )
    epochs: PositiveInt | None = Field(
        None, description="at most (default: 12 for pooled heads, 6 for the others)"
    )
    patience: PositiveInt = Field(
        4, description="stop after so many epochs without a better validation accuracy"
    )
    batch_size: Annotated[int, Field(ge=2)] | None = Field(
        None, description="texts a step (default: 512 for pooled heads, 64 for the others)"
    )
    learning_rate: Annotated[float, Field(gt=0)] | None = Field(
        None, description="the highest; it falls to 0 (default: 0.003 for pooled heads, 0.001 else)"
    )
    weight_decay: Annotated[float, Field(ge=0)] = Field(
        0.01, description="of AdamW, on the head alone"
    )


class FineTuneSettings(Section):
    """Going on with the biLM as a language model on the task's own text, before freezing it."""

    enabled: bool = Field(False, description="do so")
    epochs: PositiveInt = Field(1, description="times that the training texts are read")
    learning_rate: Annotated[float, Field(gt=0)] = Field(
        0.05, description="of Adagrad, as in pretraining"
    )
    batch_size: PositiveInt = Field(32, description="rows of the batch")
    heldout_share: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.02, description="of the texts, kept out to measure perplexity before and after"
    )


class Settings(Section):
    """All of it."""

    model: Name = Field(description="a run, a model directory, or the published pair of files")
    output: Name = Field(description="where the report goes; must not exist")
    overwrite: bool = Field(False, description="replace an existing report once all is done")
    cache: Name | None = Field(
        None, description="where representations are kept (default: beside the output)"
    )
    data: DataSettings
    mix: MixSettings = Field(default_factory=lambda: MixSettings())
    head: HeadSettings = Field(default_factory=lambda: HeadSettings())
    train: TrainingSettings = Field(default_factory=lambda: TrainingSettings())
    finetune: FineTuneSettings = Field(default_factory=lambda: FineTuneSettings())

    @model_validator(mode="after")
    def _sections_agree(self) -> Settings:
        if "none" in self.mix.kinds and self.head.vectors is None:
            raise ValueError("mix.kinds has 'none', so the words need head.vectors")
        if "none" in self.mix.kinds and self.head.elmo_at != "input":
            raise ValueError(f"mix.kinds has 'none', but head.elmo_at is {self.head.elmo_at!r}")
        return self

    def refuse_finetune(self) -> None:
        """For the commands that take a biLM as it is."""
        if self.finetune.enabled:
            raise ConfigError(
                "--finetune is for downstream.classify; here the biLM is taken as it is: run that "
                "first, and give its fine-tuned model as --model"
            )

    def without_vectors(self) -> Settings:
        """The same head with the biLM alone, for comparisons in which that is the point."""
        if "none" in self.mix.kinds or self.head.elmo_at == "output":
            raise ConfigError(
                "a comparison of the biLM alone, without word vectors, cannot have --mix none or "
                "--elmo-at output"
            )
        head = self.head.model_copy(update={"vectors": None})
        return self.model_copy(update={"head": head})

    @property
    def cache_dir(self) -> Path:
        """Where representations are kept."""
        return Path(self.cache) if self.cache else Path(self.output).parent / "representations"

    @property
    def epochs(self) -> int:
        """Epochs at most, by the user or for this kind of head."""
        return self.train.epochs or DEFAULT_EPOCHS[self.head.mode]

    def batch_size(self, num_texts: int) -> int:
        """Texts a step, likewise; the default is smaller where texts are few."""
        usual = DEFAULT_BATCH_SIZE[self.head.mode]
        return self.train.batch_size or batch_size_for(num_texts, usual)

    @property
    def learning_rate(self) -> float:
        """The highest learning rate, likewise."""
        return self.train.learning_rate or DEFAULT_LEARNING_RATE[self.head.mode]


_MIN_STEPS = 25  # an epoch

_MIN_TEXTS = 8


def batch_size_for(num_texts: int, usual: int) -> int:
    """The usual size, or a smaller one that still gives some 25 steps an epoch.

    A head standardises by running means, and its epochs are few: with one step an epoch it never
    gets off the ground. On 73 news texts this was the difference between 26 and 68 % accuracy.
    """
    return min(usual, max(_MIN_TEXTS, num_texts // _MIN_STEPS))
