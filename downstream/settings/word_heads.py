"""The settings that all tasks share whose heads read words: characters, and where a mix enters."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from downstream.settings.common import (
    TaskSettings,
    TrainingPlan,
    WordVectorSettings,
    batch_size_for,
)
from downstream.settings.ranges import Width


class WordHeadSettings(WordVectorSettings):
    """What a head reads of each word: its own vector, its characters, and the mix."""

    characters: bool | None = Field(
        None,
        description="add features of the characters of each word, computed by a CNN (default: only "
        "for the mix `none`)",
    )
    character_filters: Width = Field(64, description="number of filters of this CNN")
    elmo_at: Literal["input", "output", "both"] = Field(
        "input", description="concatenate a mix with the input or output of the encoder, or both"
    )

    def reads_characters(self, has_mix: bool) -> bool:
        """Return whether a head with or without a mix reads characters."""
        return not has_mix if self.characters is None else self.characters


class WordTaskSettings(TaskSettings):
    """The settings of a task whose head reads words; only the mix `none` needs no biLM."""

    default_epochs: ClassVar[int]
    default_batch_size: ClassVar[int]
    default_learning_rate: ClassVar[float]

    head: WordHeadSettings = WordHeadSettings()

    @model_validator(mode="after")
    def _check_inputs(self) -> Self:
        kinds, head = self.mix.kinds, self.head
        if self.model is None and kinds != ("none",):
            raise ValueError(
                f"model is missing, which the mix {', '.join(kinds)} needs; set it, or use the "
                "mix none"
            )
        if "none" in kinds and head.elmo_at != "input":
            raise ValueError(
                f"mix.kinds contains 'none', but head.elmo_at is {head.elmo_at!r}; set it to "
                "'input'"
            )
        if "none" in kinds and head.vectors is None and not head.reads_characters(has_mix=False):
            raise ValueError(
                "mix.kinds contains 'none', which needs word vectors or characters; set "
                "head.vectors or head.characters"
            )
        if head.elmo_at == "output" and head.vectors is None and not head.characters:
            raise ValueError(
                "head.elmo_at is 'output', which needs word vectors or characters at the input; "
                "set head.vectors or head.characters"
            )
        return self

    @property
    def head_training(self) -> TrainingPlan:
        """The settings that concern the training of a head."""
        return self

    @property
    def epochs(self) -> int:
        """The maximum number of epochs."""
        return self.train.epochs or self.default_epochs

    @property
    def learning_rate(self) -> float:
        """The peak learning rate."""
        return self.train.learning_rate or self.default_learning_rate

    def batch_size(self, num_examples: int) -> int:
        """Return the number of examples per step."""
        return self.train.batch_size or batch_size_for(num_examples, self.default_batch_size)
