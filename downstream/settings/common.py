"""The settings that all tasks share: the biLM, the output, the mix, word vectors, training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import Field, field_validator

from bilm.files.sections import Name, Section, Share
from downstream.settings.compute import ComputeSettings
from downstream.settings.mix_kinds import MIX_NAMES, MixKind
from downstream.settings.ranges import MAX_COUNT, BatchSize, Count, Width

MIN_STEPS_PER_EPOCH = 25
MIN_BATCH_SIZE = 8


class MixSettings(Section):
    """How the layers of the biLM are combined into one vector per word."""

    kinds: Annotated[tuple[str, ...], Field(min_length=1)] = Field(
        ("trainable",),
        description=f"one or more of {MIX_NAMES}, separated by commas; several are compared",
    )
    weights: tuple[float, ...] | None = Field(
        None, description="weights of the frozen mix before the softmax (default: random)"
    )
    gamma: float = Field(1.0, description="scale of the mix; the initial value if it is trained")
    penalty: Annotated[float, Field(ge=0)] = Field(
        1e-3, description="lambda of the penalty lambda * ||w||^2, which favors a plain average"
    )
    layer_norm: bool = Field(
        False, description="normalize each layer to mean 0 and variance 1 over the batch"
    )
    dropout: Share = Field(
        0.1, description="dropout rate of the mixed vectors; for regression, the default is 0"
    )
    dim: Width | None = Field(
        None, description="output width of the learned mix (default: the width of a layer)"
    )
    learning_rate: Annotated[float, Field(gt=0)] = Field(
        1e-2, description="learning rate of the weights and gamma of the trainable mix"
    )

    @field_validator("kinds")
    @classmethod
    def _check_kinds(cls, kinds: tuple[str, ...]) -> tuple[str, ...]:
        for kind in kinds:
            MixKind.parse(kind)
        if len(set(kinds)) < len(kinds):
            raise ValueError(f"{', '.join(kinds)} contains a mix twice")
        return kinds


class WordVectorSettings(Section):
    """The settings of word vectors, which every head has."""

    vectors: Name | None = Field(
        None,
        description="word vectors in GloVe's text format, plain or .gz, concatenated with the "
        "mix: [x; ELMo]",
    )
    unknown: Literal["mean", "zero"] = Field(
        "mean", description="vector of a word that the file of word vectors does not contain"
    )


class UnknownLabels(Section):
    """The setting of tasks in which labels may occur only in the validation or test file."""

    unknown_labels: Literal["reject", "keep"] = Field(
        "reject",
        description="what to do with labels that do not occur in the training file; those that "
        "are kept count as errors",
    )


class TrainingSettings(Section):
    """How a head is trained."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(
        0, description="seed of the validation split, initial weights, batch order and dropout"
    )
    num_seeds: Annotated[int, Field(ge=1, le=100)] = Field(
        1,
        description="number of heads to train per mix, each with its own seed; the mean and "
        "standard deviation are reported",
    )
    share: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0,
        description="share of the training examples to train on, the same for all heads; scores of "
        "the training split are those of all its examples",
    )
    epochs: Count | None = Field(
        None,
        description="maximum number of epochs (default: 12 for mean, max and mean_max, else 6)",
    )
    min_steps: Annotated[int, Field(ge=0, le=MAX_COUNT)] = Field(
        0,
        description="minimum number of steps of all epochs; with fewer training examples, an epoch "
        "uses each of them several times",
    )
    patience: Count = Field(
        4, description="stop after this many epochs without a better validation accuracy"
    )
    batch_size: BatchSize | None = Field(
        None,
        description="texts per step (default: 512 for mean, max and mean_max, 64 for the others, "
        "fewer for small data sets)",
    )
    learning_rate: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="peak learning rate; it decays to 0 (default: 0.003 for mean, max and "
        "mean_max, 0.001 for the others)",
    )
    weight_decay: Annotated[float, Field(ge=0)] = Field(
        0.01, description="weight decay of AdamW, applied to the head only"
    )


class TrainingPlan(Protocol):
    """The settings that determine how one head is trained."""

    @property
    def mix(self) -> MixSettings: ...

    @property
    def train(self) -> TrainingSettings: ...

    @property
    def epochs(self) -> int:
        """The maximum number of epochs."""

    @property
    def learning_rate(self) -> float:
        """The peak learning rate."""

    def batch_size(self, num_examples: int, /) -> int:
        """Return the number of examples per step."""


class TaskSettings(ComputeSettings):
    """The settings of every task; a task adds the section `data` and its own `head`."""

    model: Name | None = Field(None, description="a run, a model, or its name")
    output: Name = Field(description="directory of the report; see --overwrite")
    overwrite: bool = Field(False, description="replace an existing report when the run is done")
    cache: Name | None = Field(
        None,
        description="directory of the cached representations (default: `representations` in the "
        "parent directory of the output)",
    )
    mix: MixSettings = MixSettings()
    head: WordVectorSettings = WordVectorSettings()
    train: TrainingSettings = TrainingSettings()

    @property
    def cache_dir(self) -> Path:
        """The directory of the cached representations."""
        return Path(self.cache) if self.cache else Path(self.output).parent / "representations"

    @property
    def head_training(self) -> TrainingPlan:
        """The settings that concern the training of a head."""
        raise NotImplementedError


def batch_size_for(num_texts: int, usual: int) -> int:
    """Return the usual batch size, or a smaller one that gives about 25 steps per epoch.

    Heads standardize their input by running statistics and train for few epochs; with one step per
    epoch they do not converge. On 73 news texts this raised the accuracy from 26% to 68%.
    """
    return min(usual, max(MIN_BATCH_SIZE, num_texts // MIN_STEPS_PER_EPOCH))
