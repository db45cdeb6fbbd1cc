"""bilm/model/config."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from bilm.files.sections import PositiveInt, Section

# Far beyond what can be trained; what stands in a file must not decide how much is allocated.
Width = Annotated[int, Field(ge=1, le=1 << 20)]

VocabularySize = Annotated[int, Field(ge=1, le=(1 << 31) - 1)]

MAX_LAYERS = 100


class CharacterConfig(Section):
    """The character CNN that turns a word's bytes into its vector."""

    embedding_dim: Width = Field(description="width of a character's embedding")
    filters: Annotated[
        tuple[tuple[Width, Width], ...], Field(min_length=1, max_length=MAX_LAYERS)
    ] = Field(description="the convolutions, as [width, count] pairs")
    num_highway: Annotated[int, Field(ge=0, le=MAX_LAYERS)] = Field(
        description="highway layers after the convolutions"
    )
    activation: Literal["relu", "tanh"] = Field(
        "relu", description="applied after the maximum over positions"
    )
    max_characters: Annotated[int, Field(ge=3, le=(1 << 15) - 1)] = Field(
        50, description="ids per word, both word borders included; longer words are cut"
    )

    @property
    def num_filters(self) -> int:
        """The width of all convolutions together."""
        return sum(count for _, count in self.filters)

    @model_validator(mode="after")
    def _filters_fit(self) -> CharacterConfig:
        widest = max(width for width, _ in self.filters)
        if widest > self.max_characters:
            raise ValueError(
                f"filters has one of width {widest}, wider than the word: "
                f"max_characters is {self.max_characters}"
            )
        return self


class LstmConfig(Section):
    """The stacked LSTMs, one stack per direction."""

    dim: Width = Field(description="units (the width of the cell state)")
    projection_dim: Width = Field(
        description="width of the output and of a word's vector; equal to dim means no projection"
    )
    num_layers: Annotated[int, Field(ge=1, le=MAX_LAYERS)] = Field(
        description="layers per direction"
    )
    cell_clip: Annotated[float, Field(gt=0)] | None = Field(
        3.0, description="the cell state is clipped to plus and minus this; null for no clipping"
    )
    projection_clip: Annotated[float, Field(gt=0)] | None = Field(
        3.0, description="likewise for the projected output; without a projection it does nothing"
    )
    skip_connections: bool = Field(
        True, description="from the second layer on, add a layer's input to its output"
    )

    @model_validator(mode="after")
    def _projects_down(self) -> LstmConfig:
        if self.projection_dim > self.dim:
            raise ValueError(
                f"projection_dim is {self.projection_dim}, above dim {self.dim}; "
                "it must be smaller, or equal for no projection"
            )
        return self


class SoftmaxConfig(Section):
    """The softmax over the vocabulary, shared by both directions."""

    kind: Literal["sampled", "full"] = Field(
        "sampled", description="what training computes; evaluation is always full"
    )
    num_negatives: PositiveInt = Field(
        8192, description="distinct negatives per step and direction, when sampled"
    )
    shared_negatives: bool = Field(
        False, description="draw one set of negatives for both directions (the original draws two)"
    )
    tied_to_input: bool = Field(
        False, description="use the word embeddings as softmax weights; only without characters"
    )


class ModelConfig(Section):
    """What the biLM computes. The size of the vocabulary belongs to the corpus."""

    characters: CharacterConfig | None = Field(
        description="the character CNN; null for embeddings of word ids instead"
    )
    lstm: LstmConfig
    softmax: SoftmaxConfig = Field(default_factory=lambda: SoftmaxConfig())
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.1, description="share of each layer's inputs and of the top output set to zero"
    )
    bidirectional: bool = Field(True, description="false trains the forward direction only")

    @property
    def num_directions(self) -> int:
        """How many stacks of LSTMs there are."""
        return 2 if self.bidirectional else 1

    @model_validator(mode="after")
    def _tying_needs_word_ids(self) -> ModelConfig:
        if self.softmax.tied_to_input and self.characters is not None:
            raise ValueError(
                "softmax.tied_to_input is true, but the input is characters, which have no word "
                "embeddings to tie; set it to false, or model.characters to null"
            )
        return self
