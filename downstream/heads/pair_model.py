"""The head of pairs of texts: attention between the words of both texts, as in ESIM.

Both texts are read by the same biLSTM. Each word attends to the words of the other text. The word
a, the mean ã of the words that it attends to, a - ã and a * ã are projected and read by a second
biLSTM; its outputs are pooled (maximum and mean) and classified. A mix enters at the input of the
first biLSTM, at its output, or at both. See Chen et al. (2017), "Enhanced LSTM for Natural Language
Inference". Unlike there, the word vectors are also concatenated with the outputs of the first
biLSTM (`shortcut`), which aligns equal words from the first step, and both texts of a pair have the
same dropout masks. With few training pairs, both raise the accuracy.

Attribute names are part of the saved format: they are the keys of `head.safetensors`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from downstream.features.batches import Batch
from downstream.features.texts_to_layers import TextReading
from downstream.heads.class_outputs import ClassOutputs
from downstream.heads.layers import (
    BiLstmLayer,
    Dropout,
    masked_max,
    masked_mean,
    output_layers,
    reversed_places,
)
from downstream.heads.word_model import WordHeadDescription, WordModel
from downstream.settings.pairs import PAIR_FILE, PairHeadSettings


class PairDescription(WordHeadDescription):
    """The content of pair_classifier.json."""

    file_name: ClassVar[str] = PAIR_FILE

    format: Literal["bilm-pair-classifier"]
    classes: Annotated[tuple[str, ...], Field(min_length=2)]
    head: PairHeadSettings
    tokenized: bool
    max_words: Annotated[int, Field(ge=1)]

    @property
    def reading(self) -> TextReading:
        """The settings for reading texts."""
        return TextReading(self.tokenized, self.max_words)

    def build(self) -> PairModel:
        """Return the described mixes and head with new weights."""
        return PairModel(self)


class PairModel(ClassOutputs, WordModel):
    """The mixes and the head: everything that is trained."""

    def __init__(self, description: PairDescription) -> None:
        super().__init__(description)
        head = description.head
        self.dropout = Dropout(head.dropout, per_text=True)
        self.encode = BiLstmLayer(self.input_dim, head.encoder_dim)
        self.has_shortcut = head.shortcut
        encoded_dim = 2 * head.encoder_dim + self.widths().get("output", 0)
        encoded_dim += self.own_dim if self.has_shortcut else 0
        self.project = nn.Linear(4 * encoded_dim, head.encoder_dim)
        self.compose = BiLstmLayer(head.encoder_dim, head.encoder_dim)
        self.classify = output_layers(8 * head.encoder_dim, head, len(description.classes))
        for module in self.modules():
            if isinstance(module, Dropout):
                module.texts_per_example = 2

    def forward(self, batch: Batch) -> Tensor:
        """Return the scores (pairs, classes); a batch has the first texts, then the second ones."""
        mask = batch.mask
        assert mask is not None
        places = reversed_places(mask)
        words = self._encoded(batch, places)  # (2 * pairs, words, dim)
        attended = _attend(words, _swap(words), _swap(mask))
        joined = torch.cat([words, attended, words - attended, words * attended], dim=-1)
        compared = torch.relu(self.project(joined))
        composed = self.compose(self.dropout(compared), places)
        pooled = torch.cat([masked_max(composed, mask), masked_mean(composed, mask)], dim=-1)
        scores: Tensor = self.classify(torch.cat(pooled.chunk(2), dim=-1))  # (pairs, classes)
        return scores

    def _encoded(self, batch: Batch, places: Tensor) -> Tensor:
        """Return the outputs of the encoder, the mix at the output, and the words' own vectors."""
        mixed = self.mixed(batch)
        outputs = [self.encode(self.dropout(self.word_inputs(batch, mixed)), places)]
        if "output" in mixed:
            outputs.append(mixed["output"])
        if self.has_shortcut and self.own_dim:
            outputs.append(self.dropout(torch.cat(self.own_vectors(batch), dim=-1)))
        return torch.cat(outputs, dim=-1)


def _swap(texts: Tensor) -> Tensor:
    """Return the other text of each pair: the second half, and then the first."""
    first, second = texts.chunk(2)
    return torch.cat([second, first])


def _attend(words: Tensor, others: Tensor, mask: Tensor) -> Tensor:
    """Return for each word the mean of the other text's words, weighted by their similarity."""
    similarity = words @ others.transpose(1, 2)  # (texts, words, words of the other text)
    weights = similarity.masked_fill(~mask.unsqueeze(1), -torch.inf).softmax(dim=2)
    return weights @ others
