"""`Elmo`: a biLM with learned mixes of its layers, as a layer of the user's own PyTorch model.

Cost: the biLM runs once per batch, for all mixes, and its encoder once per distinct word of the
batch. A frozen biLM keeps no activations for the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, Unpack, cast

import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bilm.embedding.arguments import (
    MixOptions,
    check_flags,
    check_model,
    mix_options,
    positive_integer,
    rate,
)
from bilm.embedding.fine_tuning import layer_groups, trainable_bilm
from bilm.embedding.frozen import FrozenBiLm
from bilm.embedding.prepared import PreparedBatch, Preparer
from bilm.embedding.sentence_reader import StateMode, check_state
from bilm.embedding.words import Words
from bilm.errors import ConfigError
from bilm.model.bilstm import BiLstmState
from bilm.model.language_model import BiLm
from bilm.model.scalar_mix import ScalarMix
from bilm.pretrained.model_directory import PretrainedBiLm

Sentences = Sequence[Words | str] | npt.NDArray[Any] | PreparedBatch

PREFIX = "bilm."  # of the names of the biLM's weights in a state dict


class ElmoOutput(NamedTuple):
    """The mixed vectors of a batch and its mask."""

    outputs: list[Tensor]  # `num_outputs` tensors (sentences, words, dim), zero at padding
    mask: Tensor  # (sentences, words): true for words, false for padding


class Elmo(nn.Module):
    """Maps sentences to `num_outputs` mixes of the layers of a biLM, and a mask.

    With `trainable=False`, the weights of the biLM are constants: they are not in `parameters()`,
    not in the state dict, and copies of the module share them. `.to(device)` moves them.
    `.double()` converts them, but `.half()` and `.bfloat16()` leave them in float32, and only the
    results have the lower precision. With `trainable=True`, they are parameters of the submodule
    `bilm`, with the dropout of the pretrained model in training mode.

    Several threads may share a module, except with `state="carry"`.

    Args:
        model: a `PretrainedBiLm`, or a path or name that `PretrainedBiLm.open` accepts. A frozen
            module shares the weights of a given `PretrainedBiLm`; a trainable one copies them.
        num_outputs: the number of mixes, each with its own weights.
        trainable: fine-tune the biLM.
        keep_boundaries: keep the vectors of the tokens `<S>` and `</S>` around each sentence.
        state: the LSTM state at the beginning of a sentence; see `Embedder.embed`. With "carry",
            the sentence in row i of a batch starts from the state after row i of the last batch.
            Gradients are not propagated across batches. With "warm", no gradients are computed
            through the first reading of a sentence.
        save_frozen: include the weights of a frozen biLM in the state dict. Becomes true when
            `load_state_dict` has replaced them.
        mix: `dropout` (0.5 by default), `layer_norm` (False), `penalty` (1e-3) and
            `initial_weights` of every mix; see `ScalarMix`.
    """

    def __init__(
        self,
        model: PretrainedBiLm | Path | str,
        num_outputs: int = 1,
        *,
        trainable: bool = False,
        keep_boundaries: bool = False,
        state: StateMode = "reset",
        save_frozen: bool = False,
        **mix: Unpack[MixOptions],
    ) -> None:
        super().__init__()
        count = positive_integer("num_outputs", num_outputs)
        check_flags(trainable=trainable, keep_boundaries=keep_boundaries, save_frozen=save_frozen)
        options = mix_options(mix)
        if trainable and save_frozen:
            raise ConfigError(
                "save_frozen is true, but trainable is also true, so no weights are frozen and the "
                "state dict contains all of them; remove save_frozen"
            )
        check_state(state)
        check_model(model)
        is_shared = isinstance(model, PretrainedBiLm)
        pretrained = model if isinstance(model, PretrainedBiLm) else PretrainedBiLm.open(model)
        bilm = pretrained.model.without_softmax()
        self.state: StateMode = state
        self.save_frozen = save_frozen
        vocabulary = pretrained.vocabulary if bilm.config.characters is None else None
        self.preparer = Preparer(bilm.config, vocabulary, pretrained.tokenizer, keep_boundaries)
        self._frozen = None if trainable else FrozenBiLm(bilm)
        self._carried: BiLstmState | None = None
        self.bilm = trainable_bilm(bilm, is_copied=is_shared) if trainable else None
        num_layers = bilm.config.lstm.num_layers + 1
        self.mixes = nn.ModuleList(ScalarMix(num_layers, **options) for _ in range(count))

    @property
    def trainable(self) -> bool:
        """Whether the weights of the biLM are parameters of this module."""
        return self._frozen is None

    @property
    def model(self) -> BiLm:
        """The biLM, frozen or not."""
        return cast(BiLm, self.bilm) if self._frozen is None else self._frozen.model

    @property
    def dim(self) -> int:
        """The width of the outputs."""
        config = self.model.config
        return config.num_directions * config.lstm.projection_dim

    def extra_repr(self) -> str:
        """Describe the biLM, which is not a submodule if it is frozen."""
        kind = "trainable" if self.trainable else "frozen"
        return f"dim={self.dim}, num_layers={self.model.config.lstm.num_layers}, biLM is {kind}"

    def reset_state(self) -> None:
        """Reset the LSTM states that `state="carry"` carries from batch to batch."""
        self._carried = None

    def prepare(self, sentences: Sequence[Words | str] | npt.NDArray[Any]) -> PreparedBatch:
        """Return the input of `forward` as tensors on the CPU.

        Pass `elmo.preparer`, which computes the same, to worker processes: it has no weights.
        """
        return self.preparer(sentences)

    def forward(self, sentences: Sentences) -> ElmoOutput:
        """Return the mixed vectors, in the module's dtype and on its device, and the mask.

        `sentences` are lists or arrays of words, raw strings if the model has a tokenizer, or the
        result of `prepare`.
        """
        layers, mask = self.layers(sentences)
        is_word = _without_boundaries(mask) if self.preparer.keep_boundaries else mask
        outputs = []
        for module in self.mixes:
            mix = cast(ScalarMix, module)
            mixed = mix(layers, mask, is_word)  # (sentences, words, dim)
            outputs.append(mixed.to(mix.gamma.dtype))
        return ElmoOutput(outputs, mask)

    def layers(self, sentences: Sentences) -> tuple[list[Tensor], Tensor]:
        """Return all layers (sentences, words, dim), the token encoder's first, and the mask.

        They are zero at padding.
        """
        if torch.compiler.is_compiling():
            from bilm.embedding.uncompiled import run_uncompiled

            return cast(tuple[list[Tensor], Tensor], run_uncompiled(self.layers, sentences))
        if isinstance(sentences, PreparedBatch):
            batch = sentences
            self.preparer.check(batch)
        else:
            batch = self.prepare(sentences)
        weight = next(self.model.parameters())
        if weight.is_meta:
            raise ConfigError(
                "the biLM is on the meta device, so it has no weights; create Elmo outside of "
                '`torch.device("meta")`, and do not move it there'
            )
        batch = batch.to(weight.device)
        inputs = (batch.words.long(), batch.inverse)
        with torch.set_grad_enabled(self.trainable and torch.is_grad_enabled()):
            start = self._start(batch)
            by_direction, after = self.model.layers(*inputs, start, batch.lengths)
            if self.state == "carry":
                self._carry(batch, after)
            layers = [
                torch.cat(
                    [
                        F.embedding(places, x.flatten(0, 1).to(weight.dtype))
                        for places, x in zip(batch.places, own, strict=True)
                    ],
                    dim=-1,
                ).masked_fill(~batch.mask.unsqueeze(-1), 0.0)  # (sentences, words, dim)
                for own in zip(*by_direction, strict=True)
            ]
        return layers, batch.mask

    def _start(self, batch: PreparedBatch) -> BiLstmState:
        """Return the state at the beginning of the rows of `batch`."""
        rows = len(batch.order)
        zeros = self.model.zero_state(rows)
        if self.state == "warm":
            with torch.no_grad():
                inputs = (batch.words.long(), batch.inverse)
                return self.model.layers(*inputs, zeros, batch.lengths)[1]
        if self.state == "carry" and self._carried is not None:
            known = BiLstmState(*(x.to(zeros.cell) for x in self._carried))
            return BiLstmState.join_rows([known, zeros]).take_rows(batch.order.tolist())
        return zeros

    def _carry(self, batch: PreparedBatch, after: BiLstmState) -> None:
        """Keep the states after `batch` by sentence, and those of rows that it does not have."""
        rows = len(batch.order)
        states = [after.detach().take_rows(torch.argsort(batch.order).tolist())]
        if self._carried is not None and self._carried.cell.shape[2] > rows:
            rest = self._carried.rows(rows, self._carried.cell.shape[2])
            states.append(BiLstmState(*(x.to(after.cell) for x in rest)))
        self._carried = BiLstmState.join_rows(states)

    def penalty(self) -> Tensor:
        """Return `lambda * ||w||^2` of all mixes, to be added to the loss."""
        terms = [cast(ScalarMix, mix).regularization() for mix in self.mixes]
        return torch.stack(terms).sum()

    def parameter_groups(self, learning_rate: float, decay: float = 0.5) -> list[dict[str, Any]]:
        """Return groups for an optimizer, with lower learning rates for lower layers.

        The mixes have `learning_rate`. The top LSTM layer has `learning_rate * decay`, each layer
        below it `decay` times the rate of the one above, and the token encoder the lowest rate. A
        frozen biLM has no groups. `decay` is from 0 to 1.
        """
        learning_rate, decay = rate("learning_rate", learning_rate), rate("decay", decay, 1.0)
        mixes = {"name": "mixes", "params": list(self.mixes.parameters()), "lr": learning_rate}
        return [
            mixes,
            *([] if self.bilm is None else layer_groups(self.bilm, learning_rate, decay)),
        ]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Convert the module, for `.to()` and the like, and with it the frozen biLM."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self._frozen is not None:
            self._frozen = self._frozen.apply(fn)
        return self

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self._frozen is not None and self.save_frozen:
            for name, weight in self._frozen.model.named_parameters():
                destination[prefix + PREFIX + name] = weight.detach()

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Tensor], prefix: str, *arguments: Any
    ) -> None:
        """Read a state dict; that of a trainable biLM replaces the weights of a frozen one."""
        if self._frozen is not None:
            weights = {
                name.removeprefix(prefix + PREFIX): state_dict[name]
                for name in state_dict
                if name.startswith(prefix + PREFIX)
            }
            state_dict = {
                name: value
                for name, value in state_dict.items()
                if not name.startswith(prefix + PREFIX)
            }
            if weights:
                *_, errors = arguments
                problem = self._frozen.differences(weights)
                if problem:
                    errors.append(problem)
                else:
                    self._frozen = self._frozen.with_weights(weights)
                    self.save_frozen = True
        super()._load_from_state_dict(state_dict, prefix, *arguments)


def _without_boundaries(mask: Tensor) -> Tensor:
    """Return the mask (sentences, tokens) of sentences with boundary tokens without these."""
    followed = torch.zeros_like(mask)
    followed[:, 1:-1] = mask[:, 2:]  # the end of a sentence is followed by padding or nothing
    return followed
