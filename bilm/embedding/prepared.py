"""Batches of sentences as tensors, which the worker processes of a `DataLoader` can prepare.

A batch contains each distinct word once, so the character encoder runs once per distinct word. Rows
are sorted by descending length, as the LSTMs require, and the backward direction reads each
sentence reversed by its own length. `places` puts the outputs of both directions back into the
order of the sentences and of their words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bilm.embedding.words import Words, check_vocabulary, encoder_input, with_boundaries, words_of
from bilm.errors import ConfigError
from bilm.model.config import ModelConfig
from bilm.model.devices import copy_to_device
from bilm.text.characters import BEGIN_SENTENCE_WORD, END_SENTENCE_WORD
from bilm.text.tokenizers import Tokenizer
from bilm.text.vocabulary import Vocabulary

Ints = npt.NDArray[np.int64]

_PREPARE = "pass the result of `prepare` of the same module"


class PreparedBatch(NamedTuple):
    """The input of `Elmo` for a batch of sentences: tensors only, on one device."""

    words: Tensor  # character ids (distinct words, characters), or word ids (distinct words,)
    inverse: Tensor  # (directions, rows, time): indices into `words`, in reading order
    lengths: Tensor  # (rows,): tokens of each row with boundary tokens, descending
    order: Tensor  # (rows,): the sentence of each row
    places: Tensor  # (directions, sentences, width): time step * rows + row of each vector
    mask: Tensor  # (sentences, width): true for words, false for padding

    def to(self, device: torch.device | str, non_blocking: bool = True) -> PreparedBatch:
        """Return the batch on `device`.

        The host does not wait for copies from its memory. `non_blocking` is for other copies.
        """
        target = torch.device(device)
        return PreparedBatch(
            *(
                copy_to_device(x, target) if x.is_cpu else x.to(target, non_blocking=non_blocking)
                for x in self
            )
        )


@dataclass(frozen=True)
class Preparer:
    """Turns sentences into a `PreparedBatch`; it has no weights, so it is cheap to pickle.

    Args:
        config: the configuration of the model.
        vocabulary: only needed if the model reads word ids.
        tokenizer: only needed for raw strings.
        keep_boundaries: whether the results contain the boundary tokens.
    """

    config: ModelConfig
    vocabulary: Vocabulary | None = None
    tokenizer: Tokenizer | None = None
    keep_boundaries: bool = False

    def __post_init__(self) -> None:
        check_vocabulary(self.config, self.vocabulary)

    def __call__(self, sentences: Sequence[Words | str] | npt.NDArray[Any]) -> PreparedBatch:
        """Prepare lists or arrays of words, or raw strings if the model has a tokenizer."""
        if torch.compiler.is_compiling():
            from bilm.embedding.uncompiled import run_uncompiled

            return cast(PreparedBatch, run_uncompiled(self, sentences))
        words = words_of(sentences, self.tokenizer, "Elmo")
        tokens = [with_boundaries(sentence) for sentence in words]
        own_lengths = np.array([len(sentence) for sentence in tokens], np.int64)
        order = np.argsort(-own_lengths, kind="stable")
        ids = {BEGIN_SENTENCE_WORD: 0, END_SENTENCE_WORD: 1}
        for sentence in tokens:
            for word in sentence:
                ids.setdefault(word, len(ids))
        lengths = own_lengths[order]
        forward = np.full((len(tokens), int(lengths.max(initial=2))), 1, np.int64)
        for row, sentence in enumerate(order.tolist()):
            forward[row, : lengths[row]] = [ids[word] for word in tokens[sentence]]
        directions = self.config.num_directions
        inverse = np.stack([forward, _reversed(forward, lengths)][:directions])
        places, mask = self._places(own_lengths, order)
        return PreparedBatch(
            words=encoder_input(list(ids), self.config, self.vocabulary),
            inverse=torch.from_numpy(inverse),  # (directions, rows, time)
            lengths=torch.from_numpy(lengths),
            order=torch.from_numpy(order),
            places=torch.from_numpy(places[:directions]),  # (directions, sentences, width)
            mask=torch.from_numpy(mask),  # (sentences, width)
        )

    def check(self, batch: PreparedBatch) -> None:
        """Reject a batch of another type, or of a preparer with other boundaries."""
        for name in ("words", "inverse", "lengths", "order", "places"):
            tensor = getattr(batch, name)
            if tensor.is_floating_point() or tensor.dtype == torch.bool:
                raise TypeError(f"{name} of the batch is of type {tensor.dtype}; {_PREPARE}")
        if batch.mask.dtype != torch.bool:
            raise TypeError(f"mask of the batch is of type {batch.mask.dtype}; {_PREPARE}")
        width = batch.inverse.shape[2] - (0 if self.keep_boundaries else 2)
        if len(batch.mask) > 0 and batch.mask.shape[1] != width:
            raise ConfigError(
                f"the batch was prepared with keep_boundaries={not self.keep_boundaries}, but this "
                f"module has keep_boundaries={self.keep_boundaries}; {_PREPARE}"
            )

    def _places(self, lengths: Ints, order: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Return where the vectors of each sentence are, and which of them exist."""
        first = 0 if self.keep_boundaries else 1
        num_kept = lengths - 2 * first
        width = int(num_kept.max(initial=0))
        mask = np.arange(width) < num_kept[:, None]  # (sentences, width)
        step = np.arange(first, first + width)  # of the forward direction
        steps = np.stack([np.broadcast_to(step, mask.shape), lengths[:, None] - 1 - step])
        rows = np.empty(len(order), np.int64)
        rows[order] = np.arange(len(order))
        places = steps * len(order) + rows[:, None]  # (2, sentences, width)
        return np.where(mask, places, 0), mask  # padding reads a vector that is finite


def _reversed(forward: Ints, lengths: Ints) -> Ints:
    """Reverse each row by its own length; padding stays."""
    columns = lengths[:, None] - 1 - np.arange(forward.shape[1])
    backward = np.take_along_axis(forward, np.maximum(columns, 0), axis=1)
    return np.where(columns >= 0, backward, forward)
