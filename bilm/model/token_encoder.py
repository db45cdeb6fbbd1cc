"""Words to vectors: the character CNN with its highway layers, or plain word embeddings.

Both run once per *distinct* word of a step; the caller spreads the vectors over rows and time.

Cost of the CNN at the published size, forward, per distinct word: 12,288 additions per character
for the convolutions by look-up (16 times that in multiply-adds without the kernels), 16.8 million
multiply-adds for two highway layers, 1 million for the projection.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bilm.kernels import c_library as native
from bilm.kernels.char_cnn import LookupFilters
from bilm.kernels.highway import _FusedHighway
from bilm.model.config import CharacterConfig
from bilm.text.characters import NUM_CHARACTERS


class Highway(nn.Module):
    """`y = g * relu(x Wt + bt) + (1 - g) * x` with `g = sigmoid(x Wg + bg)`.

    The published files call Wg `W_carry`, though it opens for the transform.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gate_weight = nn.Parameter(torch.empty(dim, dim))
        self.gate_bias = nn.Parameter(torch.empty(dim))
        self.transform_weight = nn.Parameter(torch.empty(dim, dim))
        self.transform_bias = nn.Parameter(torch.empty(dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Mostly carry at the start: the gate's bias is -2."""
        std = math.sqrt(1.0 / self.gate_weight.shape[0])
        nn.init.normal_(self.gate_weight, 0.0, std)
        nn.init.constant_(self.gate_bias, -2.0)
        nn.init.normal_(self.transform_weight, 0.0, std)
        nn.init.zeros_(self.transform_bias)

    def forward(self, x: Tensor) -> Tensor:
        is_lower = torch.is_autocast_enabled(x.device.type)
        if not is_lower and native.is_available(x, self.gate_weight):
            fused = cast(Callable[..., Tensor], _FusedHighway.apply)
            return fused(
                *(x.contiguous(), self.gate_weight, self.gate_bias),
                *(self.transform_weight, self.transform_bias),
            )
        gate = torch.sigmoid(torch.addmm(self.gate_bias, x, self.gate_weight))
        transform = F.relu(torch.addmm(self.transform_bias, x, self.transform_weight))
        return gate * transform + (1 - gate) * x


class TokenEncoder(nn.Module):
    """Character ids (words, max_characters) to word vectors (words, output_dim).

    Convolutions without padding run over all positions, those of padding characters included,
    since padding has an embedding of its own; the maximum is taken before the activation.
    Between the last highway layer and `output_dim` stands a linear projection, unless the widths
    are equal already.
    """

    def __init__(self, config: CharacterConfig, output_dim: int) -> None:
        super().__init__()
        self.config = config
        self.char_embedding = nn.Parameter(torch.empty(NUM_CHARACTERS, config.embedding_dim))
        self.filter_weights = nn.ParameterList(
            nn.Parameter(torch.empty(count, config.embedding_dim, width))
            for width, count in config.filters
        )
        self.filter_biases = nn.ParameterList(
            nn.Parameter(torch.empty(count)) for _, count in config.filters
        )
        self.highways = nn.ModuleList(
            Highway(config.num_filters) for _ in range(config.num_highway)
        )
        self.projection_weight: nn.Parameter | None = None
        self.projection_bias: nn.Parameter | None = None
        if config.num_filters != output_dim:
            self.projection_weight = nn.Parameter(torch.empty(config.num_filters, output_dim))
            self.projection_bias = nn.Parameter(torch.empty(output_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise as the original does; ReLU and tanh start from different filters."""
        nn.init.uniform_(self.char_embedding, -1.0, 1.0)
        for (width, _), weight in zip(self.config.filters, self.filter_weights, strict=True):
            if self.config.activation == "relu":
                nn.init.uniform_(weight, -0.05, 0.05)
            else:
                nn.init.normal_(weight, 0.0, math.sqrt(1.0 / (width * self.config.embedding_dim)))
        for bias in self.filter_biases:
            nn.init.zeros_(bias)
        if self.projection_weight is not None and self.projection_bias is not None:
            nn.init.normal_(self.projection_weight, 0.0, math.sqrt(1.0 / self.config.num_filters))
            nn.init.zeros_(self.projection_bias)

    def forward(self, char_ids: Tensor) -> Tensor:
        # The maximum may be taken before the bias is added: it is the same at all positions.
        x = self._maxima(char_ids) + torch.cat(list(self.filter_biases))  # (words, num_filters)
        x = torch.relu(x) if self.config.activation == "relu" else torch.tanh(x)
        for highway in self.highways:
            x = highway(x)
        if self.projection_weight is not None and self.projection_bias is not None:
            x = torch.addmm(self.projection_bias, x, self.projection_weight)
        return x  # (words, output_dim)

    def _maxima(self, char_ids: Tensor) -> Tensor:
        """Every filter's maximum over all positions, by look-up where we have the kernels."""
        if native.is_available(self.char_embedding):
            lookup = cast(Callable[..., Tensor], LookupFilters.apply)
            # In float64, which costs little here: of two nearly equal windows the right one wins,
            # and the gradient goes there.
            characters = self.char_embedding.double()
            # one table per filter: (width, ids, count)
            tables = [characters @ w.double().permute(2, 1, 0) for w in self.filter_weights]
            return lookup(char_ids, *tables).to(self.char_embedding.dtype)
        embedded = F.embedding(char_ids.long(), self.char_embedding)  # (words, chars, char_dim)
        embedded = embedded.transpose(1, 2)  # (words, char_dim, chars)
        maxima = [F.conv1d(embedded, weight).amax(dim=2) for weight in self.filter_weights]
        return torch.cat(maxima, dim=1)


class WordEmbedding(nn.Module):
    """Word ids (words,) to word vectors (words, output_dim): the original's other kind of input.

    With `sparse` its gradient has only the rows of the step's words.
    """

    def __init__(self, vocabulary_size: int, output_dim: int, sparse: bool) -> None:
        super().__init__()
        self.sparse = sparse
        self.weight = nn.Parameter(torch.empty(vocabulary_size, output_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot-uniform, which is what the original's default amounts to."""
        nn.init.xavier_uniform_(self.weight)

    def forward(self, word_ids: Tensor) -> Tensor:
        return F.embedding(word_ids, self.weight, sparse=self.sparse)
