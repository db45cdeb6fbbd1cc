"""The results of `Scorer`, and their collection from the top layer of a batch.

Memory: the vectors of one batch and the logits of one chunk of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bilm.errors import ConfigError
from bilm.kernels.full_softmax import full_loss, most_likely
from bilm.model.devices import copy_to_device
from bilm.model.precision import Precision, precision_context
from bilm.model.softmax import VocabularySoftmax
from bilm.text.vocabulary import IGNORED, Vocabulary

Direction = Literal["forward", "backward", "both"]

Floats = npt.NDArray[np.float32]


class Substitute(NamedTuple):
    """A word and its probability at a position."""

    word: str
    probability: float


@dataclass(frozen=True, eq=False)
class SentenceScore:
    """The surprisal of each word of a sentence, `-ln p`, in nats.

    Divide by `math.log(2)` for bits. A word outside the vocabulary has the surprisal of `<UNK>`.
    """

    words: tuple[str, ...]
    is_unknown: npt.NDArray[np.bool_]  # (words,): words that are scored as `<UNK>`
    surprisals: Floats  # (directions, words), in the order of the words in both directions
    boundaries: Floats  # (directions,): of `</S>` after the last word, of `<S>` before the first
    combined: Floats | None = None  # (words,): by the normalized product of both directions

    @property
    def forward(self) -> Floats:
        """The surprisal of each word after the words to its left: (words,)."""
        return self._of(0)

    @property
    def backward(self) -> Floats:
        """The surprisal of each word before the words to its right: (words,)."""
        return self._of(1)

    @property
    def totals(self) -> npt.NDArray[np.float64]:
        """The surprisal of the whole sentence with its boundary, by direction: (directions,)."""
        totals: npt.NDArray[np.float64] = self.surprisals.sum(axis=1, dtype=np.float64)
        return totals + self.boundaries

    def _of(self, direction: int) -> Floats:
        if direction >= len(self.surprisals):
            raise ConfigError("this model has no backward direction; use a bidirectional model")
        surprisals: Floats = self.surprisals[direction]
        return surprisals


@dataclass(frozen=True)
class Softmax:
    """The softmax of a model on a device, with the words that it predicts."""

    module: VocabularySoftmax
    vocabulary: Vocabulary
    precision: Precision

    def losses(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each word: (words,); `hidden` is (words, dim)."""
        with precision_context(hidden.device, self.precision):
            losses: Tensor = self.module(hidden.unsqueeze(0), targets.unsqueeze(0), None)
        return losses.squeeze(0)

    def product_losses(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each word by the normalized product of both directions: (words,).

        `hidden` (words, dim) is the sum of the vectors of both, whose logits are the sum of theirs.
        """
        with precision_context(hidden.device, self.precision):
            return full_loss(hidden, self.module.weight, self.module.bias * 2, targets)

    def most_likely(self, hidden: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return the log probabilities and ids of the most likely words: (words, count).

        `hidden` is (directions, words, dim). The distribution of several directions is their
        normalized product. Its logits are the sum of theirs: one product with the summed vectors.
        """
        bias = self.module.bias * len(hidden)
        with precision_context(hidden.device, self.precision):
            return most_likely(hidden.sum(dim=0), self.module.weight, bias, count)


@dataclass(frozen=True)
class ScoreChoice:
    """What to compute.

    Args:
        combined: also the surprisals by the product of both directions.
        by_sentence: the softmax of each sentence in a call of its own.
    """

    combined: bool = False
    by_sentence: bool = False


class ScoreCollector:
    """Collects the surprisals of a batch of sentences with boundary tokens, longest first."""

    def __init__(
        self,
        batch: list[list[str]],
        softmax: Softmax,
        num_directions: int,
        choice: ScoreChoice = ScoreChoice(),  # noqa: B008
    ) -> None:
        self._batch = batch
        self._softmax = softmax
        self._by_sentence = choice.by_sentence
        self._num_words = torch.tensor([len(tokens) - 2 for tokens in batch])
        shape = (num_directions, len(batch), len(batch[0]) - 1)
        self._targets = torch.full(shape, IGNORED)  # (directions, rows, time)
        for row, tokens in enumerate(batch):
            ids = torch.tensor([softmax.vocabulary[word] for word in tokens])
            # Step t reads token t and predicts the next one; backward, from the end.
            for direction, targets in enumerate([ids[1:], ids[:-1].flip(0)][:num_directions]):
                self._targets[direction, row, : len(targets)] = targets
        self._losses = torch.zeros(shape)
        self._has_product = choice.combined and num_directions == 2
        self._sums: Tensor | None = None  # (rows, words, dim): of the vectors that predict a word

    def add(self, direction: int, start: int, layers: Sequence[Tensor]) -> None:
        """Add the layers (time, rows, dim) from step `start` on; only the top one is used."""
        top = layers[-1]
        time, rows, _ = top.shape
        window = (direction, slice(rows), slice(start, start + time))
        row, step = (self._targets[window] != IGNORED).nonzero(as_tuple=True)
        places = [copy_to_device(index, top.device) for index in (step, row)]
        hidden = top[places[0], places[1]]  # (words, dim)
        losses = self._by_row(self._softmax.losses, hidden, self._targets[window][row, step], row)
        self._losses[window][row, step] = losses
        if self._has_product:
            self._add_to_sums(direction, hidden, row, step + start)

    def _add_to_sums(self, direction: int, hidden: Tensor, row: Tensor, step: Tensor) -> None:
        """Add the vectors (predictions, dim) to those of the words that they predict."""
        if self._sums is None:
            rows, longest = len(self._batch), int(self._num_words[0])
            self._sums = hidden.new_zeros(rows, longest, hidden.shape[1])
        word = step if direction == 0 else self._num_words[row] - 1 - step
        is_word = (step < self._num_words[row]).nonzero().squeeze(1)  # not a boundary
        chosen, row, word = (
            copy_to_device(index, hidden.device) for index in (is_word, row[is_word], word[is_word])
        )
        self._sums[row, word] += hidden[chosen]

    def _by_row(
        self,
        losses: Callable[[Tensor, Tensor], Tensor],
        hidden: Tensor,
        targets: Tensor,
        row: Tensor,
    ) -> Tensor:
        """Return the losses of vectors (words, dim) whose rows are sorted, in host memory."""
        ids = copy_to_device(targets, hidden.device)
        if not self._by_sentence:
            return losses(hidden, ids).float().cpu()
        sizes = torch.unique_consecutive(row, return_counts=True)[1].tolist()
        # Copies, because a product may depend on the alignment of its operands.
        parts = zip(hidden.split(sizes), ids.split(sizes), strict=True)
        results = [losses(part.clone(), own.clone()).float().cpu() for part, own in parts]
        return torch.cat(results) if results else torch.empty(0)

    def results(self) -> list[SentenceScore]:
        """Return one result per row."""
        combined: Sequence[Floats | None] = [None] * len(self._batch)
        if self._has_product:
            combined = self._combined()
        return [self._result(row, own) for row, own in enumerate(combined)]

    @torch.inference_mode()
    def _combined(self) -> list[Floats]:
        """Return the surprisals of each row by the product of both directions."""
        assert self._sums is not None
        is_word = torch.arange(self._sums.shape[1]) < self._num_words.unsqueeze(1)
        row, word = is_word.nonzero(as_tuple=True)
        places = [copy_to_device(index, self._sums.device) for index in (row, word)]
        hidden, targets = self._sums[places[0], places[1]], self._targets[0][row, word]
        losses = self._by_row(self._softmax.product_losses, hidden, targets, row)
        return [own.numpy().copy() for own in losses.split(self._num_words.tolist())]

    def _result(self, row: int, combined: Floats | None) -> SentenceScore:
        num_words = len(self._batch[row]) - 2
        losses = self._losses[:, row, : num_words + 1].numpy().copy()
        surprisals = losses[:, :num_words]
        surprisals[1:] = surprisals[1:, ::-1].copy()  # backward, in the order of the words
        unknown = self._softmax.vocabulary.special_ids.unknown
        is_unknown = self._targets[0, row, :num_words].numpy() == unknown
        words = tuple(self._batch[row][1:-1])
        return SentenceScore(words, is_unknown, surprisals, losses[:, num_words], combined)


class PositionCollector:
    """Collects the top vectors that predict one position of each sentence.

    `steps` (directions, rows) is the step whose vector predicts it, or -1 for a direction that is
    not used.
    """

    def __init__(self, steps: npt.NDArray[np.int64]) -> None:
        self._steps = steps
        self._vectors: dict[tuple[int, int], Tensor] = {}

    def add(self, direction: int, start: int, layers: Sequence[Tensor]) -> None:
        """Add the layers (time, rows, dim) from step `start` on; only the top one is used."""
        time, rows, _ = layers[-1].shape
        steps = self._steps[direction, :rows] - start
        for row in np.flatnonzero((steps >= 0) & (steps < time)).tolist():
            self._vectors[direction, row] = layers[-1][int(steps[row]), row]

    def results(self) -> list[Tensor]:
        """Return the vectors (directions used, dim) of each row."""
        directions, rows = self._steps.shape
        return [
            torch.stack(
                [
                    self._vectors[direction, row]
                    for direction in range(directions)
                    if self._steps[direction, row] >= 0
                ]
            )
            for row in range(rows)
        ]
