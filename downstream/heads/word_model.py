"""What the heads share that read words: the inputs `[x; characters; ELMo]`.

Attribute names are part of the saved format: they are the keys of `head.safetensors`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bilm.text.characters import NUM_CHARACTERS, PADDING
from downstream.features.batches import Batch
from downstream.heads.head import MixedModel
from downstream.heads.saved_head import HeadDescription
from downstream.settings.mix_kinds import MixKind
from downstream.settings.word_heads import WordHeadSettings

_CHARACTER_DIM = 16
_FILTER_WIDTH = 3


class WordHeadDescription(HeadDescription):
    """The fields that describe a trained head that reads words."""

    head: WordHeadSettings

    @property
    def has_characters(self) -> bool:
        """Whether the head reads characters; by default, only without a mix."""
        return self.head.reads_characters(self.mix_kind != "none")

    def input_names(self) -> list[str]:
        """Return what the head reads, in words."""
        names = []
        if self.bilm is not None and self.mix_kind != "none":
            names.append(f"a frozen biLM (digest `{self.bilm.digest[:12]}`, mix `{self.mix_kind}`)")
        if self.vectors is not None:
            names.append(f"word vectors of {self.vector_dim} dimensions")
        return [*names, "characters"] if self.has_characters else names


class CharacterFeatures(nn.Module):
    """The maximum over a word of the outputs of a convolution over its characters."""

    def __init__(self, num_filters: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(NUM_CHARACTERS, _CHARACTER_DIM)
        self.convolution = nn.Linear(_FILTER_WIDTH * _CHARACTER_DIM, num_filters)

    def forward(self, characters: Tensor, index: Tensor) -> Tensor:
        """Return the features (sentences, words, filters) of types at `index`."""
        embedded = self.embedding(characters)  # (types, characters, dim)
        windows = embedded.unfold(1, _FILTER_WIDTH, 1).flatten(2)  # (types, places, 3 * dim)
        outputs = F.relu(self.convolution(windows))
        # Outputs are at least 0, so 0 for windows with padding leaves the maximum unchanged.
        is_word = characters[:, _FILTER_WIDTH - 1 :] != PADDING
        types = (outputs * is_word.unsqueeze(2)).amax(dim=1)  # (types, filters)
        return F.embedding(index, types)


class WordModel(MixedModel):
    """The base class of heads that read words.

    The input of a word is `[x; characters; ...; ELMo]`: its own vector, features of its characters,
    what the head adds, and the mix, each if there is one.
    """

    def __init__(self, description: WordHeadDescription) -> None:
        kind, head = MixKind.parse(description.mix_kind), description.head
        shape = description.shape
        super().__init__(kind, description.mix, head.elmo_at, shape, description.seed)
        self.own_dim = shape.vector_dim  # the width of `own_vectors`
        self.characters: CharacterFeatures | None = None
        if description.has_characters:
            self.characters = CharacterFeatures(head.character_filters)
            self.own_dim += head.character_filters
        self.input_dim = self.own_dim + self.widths().get("input", 0)

    def own_vectors(self, batch: Batch) -> list[Tensor]:
        """Return the vectors of words and the features of their characters, each if there is one.

        Both are (texts, words, dim).
        """
        parts = [] if batch.vectors is None else [batch.vectors]
        if self.characters is not None:
            extras = batch.extras
            parts.append(self.characters(extras["characters"], extras["character_index"]))
        return parts

    def word_inputs(
        self, batch: Batch, mixed: Mapping[str, Tensor], added: Sequence[Tensor] = ()
    ) -> Tensor:
        """Return the inputs of all words (texts, words, `input_dim` and the width of `added`)."""
        parts = [*self.own_vectors(batch), *added]
        if "input" in mixed:
            parts.append(mixed["input"])
        return torch.cat(parts, dim=-1)
