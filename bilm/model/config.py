"""The configuration of a model: the `model` section of a configuration file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from bilm.files.sections import PositiveInt, Section

# Far above any trainable size; the bound keeps a damaged file from causing a huge allocation.
Width = Annotated[int, Field(ge=1, le=1 << 20)]

VocabularySize = Annotated[int, Field(ge=1, le=(1 << 31) - 1)]

MAX_LAYERS = 100


class CharacterConfig(Section):
    """The character CNN, which maps the bytes of a word to its vector."""

    embedding_dim: Width = Field(description="width of a character's embedding")
    filters: Annotated[
        tuple[tuple[Width, Width], ...], Field(min_length=1, max_length=MAX_LAYERS)
    ] = Field(description="the convolutions, as [width, count] pairs")
    num_highway: Annotated[int, Field(ge=0, le=MAX_LAYERS)] = Field(
        description="number of highway layers after the convolutions"
    )
    activation: Literal["relu", "tanh"] = Field(
        "relu", description="applied after the maximum over positions"
    )
    max_characters: Annotated[int, Field(ge=3, le=(1 << 15) - 1)] = Field(
        50,
        description="character ids per word, with both word boundaries; longer words are truncated",
    )

    @property
    def num_filters(self) -> int:
        """The total number of filters."""
        return sum(count for _, count in self.filters)

    @model_validator(mode="after")
    def _filters_fit(self) -> CharacterConfig:
        widest = max(width for width, _ in self.filters)
        if widest > self.max_characters:
            raise ValueError(
                f"filters has a width of {widest}; it must be at most max_characters, which is "
                f"{self.max_characters}"
            )
        return self


class LstmConfig(Section):
    """The stacked LSTMs, one stack per direction."""

    dim: Width = Field(description="number of units (the width of the cell state)")
    projection_dim: Width = Field(
        description="width of the output and of a word's vector; no projection if equal to dim"
    )
    num_layers: Annotated[int, Field(ge=1, le=MAX_LAYERS)] = Field(
        description="number of layers per direction"
    )
    cell_clip: Annotated[float, Field(gt=0)] | None = Field(
        3.0, description="bound on the absolute values of the cell state; null for no clipping"
    )
    projection_clip: Annotated[float, Field(gt=0)] | None = Field(
        3.0, description="the same for the projected output; no effect without a projection"
    )
    skip_connections: bool = Field(
        True, description="from the second layer on, add a layer's input to its output"
    )

    @model_validator(mode="after")
    def _projects_down(self) -> LstmConfig:
        if self.projection_dim > self.dim:
            raise ValueError(
                f"projection_dim is {self.projection_dim}; it must be below dim, which is "
                f"{self.dim}, or equal to it for no projection"
            )
        return self


class SoftmaxConfig(Section):
    """The softmax over the vocabulary, shared by both directions."""

    kind: Literal["sampled", "full"] = Field(
        "sampled", description="the softmax used in training; evaluation always uses the full one"
    )
    num_negatives: PositiveInt = Field(
        8192, description="distinct negatives per step and direction of the sampled softmax"
    )
    shared_negatives: bool = Field(
        False, description="draw one set of negatives for both directions (the original draws two)"
    )
    tied_to_input: bool = Field(
        False, description="use the word embeddings as softmax weights; only if characters is null"
    )


class ModelConfig(Section):
    """The biLM, except for the size of its vocabulary, which is a property of the corpus."""

    characters: CharacterConfig | None = Field(
        description="the character CNN; null for embeddings of word ids instead"
    )
    lstm: LstmConfig
    softmax: SoftmaxConfig = SoftmaxConfig()
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.1,
        description="share of each layer's inputs and of the top output to set to zero in training",
    )
    bidirectional: bool = Field(True, description="false trains the forward direction only")

    @property
    def num_directions(self) -> int:
        """The number of stacks of LSTMs."""
        return 2 if self.bidirectional else 1

    @model_validator(mode="after")
    def _tying_needs_word_ids(self) -> ModelConfig:
        if self.softmax.tied_to_input and self.characters is not None:
            raise ValueError(
                "softmax.tied_to_input is true, but a model that reads characters has no word "
                "embeddings; set it to false, or set model.characters to null"
            )
        return self
