"""The biLM: a token encoder, two stacks of LSTMs and one softmax.

The input of a step is its distinct words and, for each direction, row and time step, an index into
them, so that the encoder runs once per distinct word for both directions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from bilm.kernels.checks import check_dims, check_ids, check_integers
from bilm.kernels.dropout import DropoutSeed, active_seed, dropout
from bilm.model.bilstm import BiLstm, BiLstmState
from bilm.model.config import ModelConfig
from bilm.model.negatives import Negatives, draw_negatives
from bilm.model.precision import Precision, precision_context
from bilm.model.softmax import SampledTargets, VocabularySoftmax, sampled_targets
from bilm.model.token_encoder import TokenEncoder, WordEmbedding

DIRECTIONS = ("forward", "backward")  # their order in all tensors


class BiLm(nn.Module):
    """A bidirectional language model over a vocabulary of `vocabulary_size` words.

    Without a vocabulary, as in the published files, there is no softmax: the model computes
    representations, but no losses.
    """

    def __init__(self, config: ModelConfig, vocabulary_size: int | None) -> None:
        super().__init__()
        self.config = config
        self.vocabulary_size = vocabulary_size
        self.training_precision: Precision = "float32"
        self.evaluation_precision: Precision = "float32"
        dim = config.lstm.projection_dim
        self.encoder: TokenEncoder | WordEmbedding
        if config.characters is not None:
            self.encoder = TokenEncoder(config.characters, dim)
        elif vocabulary_size is not None:
            self.encoder = WordEmbedding(vocabulary_size, dim, config.softmax.kind == "sampled")
        else:
            raise ValueError("vocabulary_size is None; a model that reads word ids requires it")
        self.bilstm = BiLstm(config.lstm, config.num_directions, config.dropout)
        self.softmax: VocabularySoftmax | None = None
        if vocabulary_size is not None:
            tied = self.encoder.weight if isinstance(self.encoder, WordEmbedding) else None
            self.softmax = VocabularySoftmax(
                vocabulary_size, dim, tied if config.softmax.tied_to_input else None
            )

    def encoder_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Return the named parameters that compute representations: all but the softmax's own."""
        softmax_names = {name for name, _ in self.softmax_parameters()}
        return (item for item in self.named_parameters() if item[0] not in softmax_names)

    def softmax_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Return the named parameters of the softmax, except for a weight tied to the input."""
        return (item for item in self.named_parameters() if item[0].startswith("softmax."))

    def without_softmax(self) -> BiLm:
        """Return a model that shares the encoder and the LSTMs and has no softmax."""
        model = shape_only_model(self.config, self.vocabulary_size)
        model.encoder, model.bilstm, model.softmax = self.encoder, self.bilstm, None
        model.training = self.training
        return model

    def zero_state(self, rows: int) -> BiLstmState:
        """Return the state before the first word."""
        return self.bilstm.zero_state(rows)

    def layers(
        self,
        words: Tensor,
        inverse: Tensor,
        state: BiLstmState,
        lengths: Tensor | None = None,
        dropout_seed: DropoutSeed | None = None,
    ) -> tuple[list[list[Tensor]], BiLstmState]:
        """Return all layers of each direction, and the next state.

        `words` are character ids (distinct words, characters) or word ids (distinct words,);
        `inverse` (directions, rows, time) are indices into them, in the reading order of each
        direction. Layers are (time, rows, dim), the encoder's output first. `lengths` (rows,) must
        be in descending order; see `ProjectedLstm.forward`. For `dropout_seed`, see `forward`.
        """
        vectors = self.encoder(words)  # (distinct words, dim)
        check_integers("inverse", inverse, vectors.device, (torch.int32, torch.int64))
        check_dims("inverse", inverse, "directions", "rows", "time")
        check_ids("inverse", inverse, len(vectors))
        # (directions, time, rows, dim): time first for the LSTMs
        inputs = F.embedding(inverse.transpose(1, 2), vectors).unbind()
        outputs, next_state = self.bilstm(inputs, state, lengths, dropout_seed)
        return [[x, *layers] for x, layers in zip(inputs, outputs, strict=True)], next_state

    def forward(
        self,
        words: Tensor,
        inverse: Tensor,
        targets: Tensor,
        state: BiLstmState,
        negatives: Sequence[Negatives] | SampledTargets | None = None,
        dropout_seed: DropoutSeed | None = None,
    ) -> tuple[Tensor, BiLstmState]:
        """Return the summed loss of each direction (directions,), and the next state.

        `targets` (directions, rows, time) are softmax ids, or `IGNORED` for no prediction. With
        `negatives`, or the result of `prepare_targets` for these targets, the loss is that of the
        sampled softmax, otherwise that of the full softmax.

        In training, `dropout_seed` determines the dropout masks. Without it, a seed is drawn from
        PyTorch's default generator, so that `torch.manual_seed` makes them reproducible.
        """
        if self.softmax is None:
            raise ValueError("this model has no softmax, so it cannot compute a loss")
        rate, num_layers = self.config.dropout, self.config.lstm.num_layers
        seed = active_seed(self.training, rate, dropout_seed)
        # Entered here, because DeepSpeed switches off an autocast outside of forward.
        precision = self.training_precision if self.training else self.evaluation_precision
        with precision_context(self.softmax.bias.device, precision):
            layers, next_state = self.layers(words, inverse, state, dropout_seed=seed)
            tops = [dropout(x[-1], rate, seed, num_layers, d) for d, x in enumerate(layers)]
            hidden = torch.stack([top.flatten(0, 1) for top in tops])  # (directions, words, dim)
            losses = self.softmax(hidden, _in_time_order(targets), negatives)
        return losses.sum(dim=1), next_state

    def draw_negatives(self, seed: tuple[int, ...]) -> list[Negatives] | None:
        """Draw the negatives of a step: one set per direction or one for all.

        Returns None for the full softmax.
        """
        config = self.config.softmax
        if config.kind == "full" or self.vocabulary_size is None:
            return None
        count, size = config.num_negatives, self.vocabulary_size
        num_sets = 1 if config.shared_negatives else self.config.num_directions
        return [draw_negatives(count, size, (*seed, number)) for number in range(num_sets)]

    def prepare_targets(self, targets: Tensor, seed: tuple[int, ...]) -> SampledTargets | None:
        """Draw the negatives of a step and combine them with targets (directions, rows, time).

        It is computed on the device of the targets: on the host, by a loader. Returns None for the
        full softmax.
        """
        negatives = self.draw_negatives(seed)
        if negatives is None or self.vocabulary_size is None:
            return None
        return sampled_targets(_in_time_order(targets), negatives, self.vocabulary_size)


def _in_time_order(targets: Tensor) -> Tensor:
    """Return targets (directions, rows, time) in the order of the outputs of the LSTMs."""
    return targets.transpose(1, 2).flatten(1)


def training_objective(loss_sums: Tensor, rows: int) -> Tensor:
    """Return the objective to differentiate: the loss summed over time, averaged over the rest.

    The average is over rows and directions. This is the original's `loss * unroll_steps`, in a form
    that is also valid for a shorter step. Its scale determines when the gradient clip takes effect,
    and with it every Adagrad step.
    """
    return loss_sums.mean() / rows


def shape_only_model(config: ModelConfig, vocabulary_size: int | None) -> BiLm:
    """Return a model without memory for its weights, to check a file before allocating any."""
    # Random initialization on the meta device would import PyTorch's compiler, which takes longer
    # than reading a small model.
    with torch.device("meta"), _SkipInitialization():
        return BiLm(config, vocabulary_size)


def allocate(model: BiLm) -> BiLm:
    """Allocate uninitialized weights for a model from `shape_only_model`, and return it.

    They are in host memory and in float32, regardless of PyTorch's default device and type.
    `Module.to_empty` would import sympy.
    """
    for module in model.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            own = torch.empty(weight.shape, dtype=torch.float32, device="cpu")
            setattr(module, name, nn.Parameter(own))
    if model.config.softmax.tied_to_input and model.softmax is not None:
        # The loop has allocated two tensors for the tied weight.
        model.softmax.weight = cast(WordEmbedding, model.encoder).weight
    return model.eval()


class _SkipInitialization(TorchFunctionMode):
    """Leaves weights as they are where a module draws random ones."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", None) in ("normal_", "uniform_"):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)
