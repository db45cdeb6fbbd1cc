"""Heads that read the words of texts, with or without a biLM: their inputs and description.

The input of a word is `[x; characters; ELMo]`: its own vector, features of its characters from a
CNN, and the mix, each if there is one.

Attribute names are part of the saved format: they are the keys of `head.safetensors`.
"""

from __future__ import annotations

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
    """The fields that describe a head that reads words; each task adds its own."""

    head: WordHeadSettings

    @property
    def has_characters(self) -> bool:
        """Whether the head reads characters."""
        return self.head.reads_characters(has_mix=self.mix_kind != "none")


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
    """The mixes, and the features of characters if the head reads them."""

    def __init__(self, description: WordHeadDescription) -> None:
        kind, head = MixKind.parse(description.mix_kind), description.head
        super().__init__(kind, description.mix, head.elmo_at, description.shape, description.seed)
        self.own_dim = description.shape.vector_dim  # the width of `own_vectors`
        self.characters: CharacterFeatures | None = None
        if description.has_characters:
            self.characters = CharacterFeatures(head.character_filters)
            self.own_dim += head.character_filters

    def own_vectors(self, batch: Batch) -> list[Tensor]:
        """Return the vectors of words and the features of their characters, each if there is one.

        Both are (texts, words, dim).
        """
        parts = [] if batch.vectors is None else [batch.vectors]
        if self.characters is not None:
            extras = batch.extras
            parts.append(self.characters(extras["characters"], extras["character_index"]))
        return parts
