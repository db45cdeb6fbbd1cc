"""The biLM: token encoder, two stacks of LSTMs, one softmax. No DeepSpeed, no input or output.

A step's words come as its distinct words and an index that spreads them over directions, rows and
time, so that the encoder runs once per distinct word for both directions.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bilm.model.bilstm import BiLstm, BiLstmState
from bilm.model.config import (
    ModelConfig,
)
from bilm.model.negatives import Negatives, draw_negatives
from bilm.model.softmax import SampledSoftmax
from bilm.model.token_encoder import TokenEncoder, WordEmbedding

DIRECTIONS = ("forward", "backward")  # in the order of every tensor that has directions


class BiLm(nn.Module):
    """A bidirectional language model over a vocabulary of `vocabulary_size` words.

    Without a vocabulary (the published files have none) there is no softmax: the model gives
    representations, but no losses.
    """

    def __init__(self, config: ModelConfig, vocabulary_size: int | None) -> None:
        super().__init__()
        self.config = config
        self.vocabulary_size = vocabulary_size
        dim = config.lstm.projection_dim
        self.encoder: TokenEncoder | WordEmbedding
        if config.characters is not None:
            self.encoder = TokenEncoder(config.characters, dim)
        elif vocabulary_size is not None:
            self.encoder = WordEmbedding(vocabulary_size, dim, config.softmax.kind == "sampled")
        else:
            raise ValueError("a model of word ids needs the size of its vocabulary")
        self.bilstm = BiLstm(config.lstm, config.num_directions, config.dropout)
        self.softmax: SampledSoftmax | None = None
        if vocabulary_size is not None:
            tied = self.encoder.weight if isinstance(self.encoder, WordEmbedding) else None
            self.softmax = SampledSoftmax(
                vocabulary_size, dim, tied if config.softmax.tied_to_input else None
            )

    def zero_state(self, rows: int) -> BiLstmState:
        """The state before the first word."""
        return self.bilstm.zero_state(rows)

    def layers(
        self,
        words: Tensor,
        inverse: Tensor,
        state: BiLstmState,
        lengths: Tensor | None = None,
    ) -> tuple[list[list[Tensor]], BiLstmState]:
        """All layers of each direction, and the next state.

        `words` are character ids (distinct words, characters) or word ids (distinct words,);
        `inverse` (directions, rows, time) points into them, each direction in its own order of
        reading. Layers are (time, rows, dim), the encoder's output first.
        """
        vectors = self.encoder(words)  # (distinct words, dim)
        # (directions, time, rows, dim): the LSTMs want time first
        inputs = F.embedding(inverse.transpose(1, 2), vectors).unbind()
        outputs, next_state = self.bilstm(inputs, state, lengths)
        return [[x, *layers] for x, layers in zip(inputs, outputs, strict=True)], next_state

    def forward(
        self,
        words: Tensor,
        inverse: Tensor,
        targets: Tensor,
        state: BiLstmState,
        negatives: Sequence[Negatives] | None = None,
    ) -> tuple[Tensor, BiLstmState]:
        """The summed loss of each direction (directions,), and the next state.

        `targets` (directions, rows, time) are softmax ids, or -1 for no prediction. With
        `negatives` the loss is sampled; without, it is that of the full softmax.
        """
        if self.softmax is None:
            raise ValueError("this model has no softmax, so it has no loss")
        layers, next_state = self.layers(words, inverse, state)
        # (directions, time * rows, dim)
        tops = torch.stack([outputs[-1].flatten(0, 1) for outputs in layers])
        tops = F.dropout(tops, self.config.dropout, self.training)
        losses = self.softmax(tops, targets.transpose(1, 2).flatten(1), negatives)
        return losses.sum(dim=1), next_state

    def without_softmax(self) -> BiLm:
        """Return a copy of the model without its softmax; the other weights are shared."""
        model = copy.copy(self)
        model._modules = {**self._modules, "softmax": None}
        return model

    def draw_negatives(self, seed: tuple[int, ...]) -> list[Negatives] | None:
        """The negatives of a step, by direction or one set for all; None for the full softmax."""
        config = self.config.softmax
        if config.kind == "full" or self.vocabulary_size is None:
            return None
        count, size = config.num_negatives, self.vocabulary_size
        num_sets = 1 if config.shared_negatives else self.config.num_directions
        return [draw_negatives(count, size, (*seed, number)) for number in range(num_sets)]


def training_objective(loss_sums: Tensor, rows: int) -> Tensor:
    """What is differentiated: the mean over rows and directions, *summed* over the time steps.

    That is the original's `loss * unroll_steps`, said so that it holds for a shorter step too. It
    decides when the gradient clip binds, and hence every Adagrad step.
    """
    return loss_sums.mean() / rows


def empty_model(config: ModelConfig, vocabulary_size: int | None) -> BiLm:
    """A model whose weights are allocated but not set: the caller fills every one of them."""
    return allocate(shape_only_model(config, vocabulary_size))


def shape_only_model(config: ModelConfig, vocabulary_size: int | None) -> BiLm:
    """A model that takes no memory, to compare with a file before any is taken."""
    with torch.device("meta"):
        return BiLm(config, vocabulary_size)


def allocate(model: BiLm) -> BiLm:
    """Give a model of `shape_only_model` its memory."""
    model = model.to_empty(device="cpu").eval()
    if model.config.softmax.tied_to_input and model.softmax is not None:
        # to_empty has made two of it
        model.softmax.weight = cast(WordEmbedding, model.encoder).weight
    return model
