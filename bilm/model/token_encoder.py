"""The token encoder: the character CNN with its highway layers, or plain word embeddings.

Both run once per *distinct* word of a step; the caller distributes the vectors over rows and time.

Cost of the CNN at the published size, forward, per distinct word: 12,288 additions per character
for the convolutions by table look-up (16 times as many multiply-adds without the C kernels), 16.8
million multiply-adds for two highway layers, 1 million for the projection.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bilm.kernels.char_cnn import filter_maxima
from bilm.kernels.checks import check_dims, check_ids, check_integers
from bilm.kernels.highway import HighwayWeights, highway
from bilm.model.config import CharacterConfig
from bilm.text.characters import NUM_CHARACTERS


class Highway(nn.Module):
    """Compute `y = g * relu(x Wt + bt) + (1 - g) * x` with `g = sigmoid(x Wg + bg)`.

    The published files call Wg `W_carry`, although the gate scales the transformed part.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gate_weight = nn.Parameter(torch.empty(dim, dim))
        self.gate_bias = nn.Parameter(torch.empty(dim))
        self.transform_weight = nn.Parameter(torch.empty(dim, dim))
        self.transform_bias = nn.Parameter(torch.empty(dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the weights; with a gate bias of -2, most of the input is carried."""
        std = math.sqrt(1.0 / self.gate_weight.shape[0])
        nn.init.normal_(self.gate_weight, 0.0, std)
        nn.init.constant_(self.gate_bias, -2.0)
        nn.init.normal_(self.transform_weight, 0.0, std)
        nn.init.zeros_(self.transform_bias)

    def forward(self, x: Tensor) -> Tensor:
        weights = HighwayWeights(
            self.gate_weight, self.gate_bias, self.transform_weight, self.transform_bias
        )
        return highway(x, weights)


class TokenEncoder(nn.Module):
    """Map character ids (words, max_characters) to word vectors (words, output_dim).

    Convolutions without padding run over all positions, including those of padding characters,
    which have their own embedding; the maximum is taken before the activation. A linear projection
    follows the last highway layer, unless its width already equals `output_dim`.
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
        """Initialize as the original does; the filters' distribution depends on the activation."""
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
        # The bias may be added after the maximum, since it is the same at all positions.
        maxima = filter_maxima(char_ids, self.char_embedding, list(self.filter_weights))
        x = maxima + torch.cat(list(self.filter_biases))  # (words, num_filters)
        x = torch.relu(x) if self.config.activation == "relu" else torch.tanh(x)
        for layer in self.highways:
            x = layer(x)
        if self.projection_weight is not None and self.projection_bias is not None:
            x = torch.addmm(self.projection_bias, x, self.projection_weight)
        return x  # (words, output_dim)


class WordEmbedding(nn.Module):
    """Map word ids (words,) to word vectors (words, output_dim): the original's alternative input.

    With `sparse` the gradient contains only the rows of the step's words.
    """

    def __init__(self, vocabulary_size: int, output_dim: int, sparse: bool) -> None:
        super().__init__()
        self.sparse = sparse
        self.weight = nn.Parameter(torch.empty(vocabulary_size, output_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize Glorot-uniformly, the original's default."""
        nn.init.xavier_uniform_(self.weight)

    def forward(self, word_ids: Tensor) -> Tensor:
        check_integers("word_ids", word_ids, self.weight.device, (torch.int32, torch.int64))
        check_dims("word_ids", word_ids, "words")
        check_ids("word_ids", word_ids, len(self.weight))
        return F.embedding(word_ids, self.weight, sparse=self.sparse)
