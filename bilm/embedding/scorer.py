"""A biLM as a language model: surprisals, perplexities, and the most likely words of a position.

Each direction predicts a word from the words on its side only. All probabilities are those of the
full softmax, which is computed in chunks of the vocabulary; `sentence_reader.py` and
`full_softmax.py` bound the memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bilm.embedding.arguments import integer, positive_integer
from bilm.embedding.scores import (
    Direction,
    PositionCollector,
    ScoreChoice,
    ScoreCollector,
    SentenceScore,
    Softmax,
    Substitute,
)
from bilm.embedding.sentence_batches import length_batches
from bilm.embedding.sentence_reader import DEFAULT_LIMITS, Limits, SentenceReader, StateMode
from bilm.embedding.words import Words, with_boundaries, words_of
from bilm.errors import CheckpointError, ConfigError, DivergedError
from bilm.model.devices import copy_module_to
from bilm.model.perplexity import TextPerplexity
from bilm.model.precision import Precision
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.characters import SPECIAL_WORDS


class Scorer(SentenceReader):
    """Computes probabilities of words in sentences, in both directions.

    Several threads may share a scorer, except for `state="carry"`, where the order of the calls
    determines the results.

    Args:
        model: a `PretrainedBiLm` with a softmax and a vocabulary, or a path or name that
            `PretrainedBiLm.open` accepts.
        limits, device, precision: see `Embedder`.
    """

    num_unread = 1  # the last boundary token is predicted, but not read, as in training

    def __init__(
        self,
        model: PretrainedBiLm | Path | str,
        limits: Limits = DEFAULT_LIMITS,
        device: str | torch.device | None = None,
        precision: Precision = "float32",
    ) -> None:
        pretrained = model if isinstance(model, PretrainedBiLm) else PretrainedBiLm.open(model)
        if pretrained.model.softmax is None or pretrained.vocabulary is None:
            missing = "softmax" if pretrained.model.softmax is None else "vocabulary"
            raise CheckpointError(
                f"this model has no {missing}, so it cannot predict words; use a run or a model "
                "directory that `bilm export` has written from one (published weights have no "
                "softmax)"
            )
        super().__init__(pretrained, limits, device, precision)
        module = copy_module_to(pretrained.model.softmax, self.device)
        self._softmax = Softmax(module, pretrained.vocabulary, precision)

    def score(
        self,
        sentences: Sequence[Words | str] | npt.NDArray[Any],
        state: StateMode = "reset",
        batch_size: int = 32,
        combined: bool = False,
    ) -> list[SentenceScore]:
        """Return the surprisals of each sentence, in the order given.

        `sentences` are lists or arrays of words, or raw strings if the model has a tokenizer. For
        `state` and `batch_size`, see `Embedder.embed`. With "reset", a sentence gets the same
        result regardless of the other sentences. `combined` adds the surprisals by the normalized
        product of both directions, the distribution of `substitutes` with "both".
        """
        self._check_state(state, batch_size)
        words = list(words_of(sentences, self.pretrained.tokenizer, "score"))
        return list(self._scores(words, state, batch_size, combined))

    def perplexity(
        self, sentences: Iterable[Words | str], state: StateMode = "reset", batch_size: int = 32
    ) -> TextPerplexity:
        """Return the perplexities of a text of any length, by direction and their geometric mean.

        A sentence of n words has n + 1 predictions in each direction: its words and a boundary.
        `bilm evaluate` carries the LSTM state over; `state="carry"` with `batch_size=1` does so.
        """
        self._check_state(state, batch_size)
        words = words_of(sentences, self.pretrained.tokenizer, "perplexity")
        sums = np.zeros(self._model.config.num_directions)
        num_sentences = num_words = num_unknown = 0
        for score in self._scores(words, state, batch_size):
            sums += score.totals
            num_sentences += 1
            num_words += len(score.words)
            num_unknown += int(score.is_unknown.sum())
        if num_sentences == 0:
            raise ConfigError("there are no sentences; perplexity needs at least one")
        if not np.isfinite(sums).all():
            raise DivergedError(
                f"the surprisals are {sums.tolist()}: some of the model's weights are not finite, "
                "or far too large; use another checkpoint"
            )
        num_predictions = num_words + num_sentences
        losses = tuple((sums / num_predictions).tolist())
        return TextPerplexity(losses, num_predictions, num_unknown / max(1, num_words))

    def substitutes(
        self,
        sentences: Sequence[Words | str] | npt.NDArray[Any],
        positions: Sequence[int],
        count: int = 10,
        direction: Direction = "both",
        include_special: bool = False,
    ) -> list[list[Substitute]]:
        """Return the most likely words at one position of each sentence, with probabilities.

        The word that is at the position has no effect on them.

        Args:
            sentences: as for `score`.
            positions: the index of a word in each sentence, from 0. With "forward", it may be the
                number of words: the position after the last one.
            count: the number of words to return, fewer if the vocabulary is smaller.
            direction: "forward" predicts from the words to the left, "backward" from those to the
                right. "both" is the normalized product of the two probabilities.
            include_special: also return `<S>`, `</S>` and `<UNK>`, which are otherwise left out.
                The probabilities are over the whole vocabulary in both cases.
        """
        words = list(words_of(sentences, self.pretrained.tokenizer, "substitutes"))
        used = self._used_directions(direction)
        count = positive_integer("count", count)
        positions = _checked_positions(words, positions, direction)
        results: dict[int, list[Substitute]] = {}
        lengths = [len(sentence) + 2 for sentence in words]
        for indices in length_batches(lengths, self.limits.batch_words):
            batch = [with_boundaries(words[i]) for i in indices]
            steps = np.array([[positions[i], len(words[i]) - 1 - positions[i]] for i in indices])
            is_used = np.array([name in used for name in ("forward", "backward")])
            collector = PositionCollector(np.where(is_used, steps, -1).T)  # (directions, rows)
            self._read(batch, self._bilstm.zero_state(len(batch)), collector)
            found = self._most_likely(torch.stack(collector.results(), 1), count, include_special)
            results.update(zip(indices, found, strict=True))
        return [results[i] for i in range(len(words))]

    def _scores(
        self,
        words: Iterable[Sequence[str]],
        state: StateMode,
        batch_size: int,
        combined: bool = False,
    ) -> Iterator[SentenceScore]:
        num_directions = self._model.config.num_directions
        choice = ScoreChoice(combined, by_sentence=self.limits.batch_invariant)

        def collect(batch: list[list[str]]) -> ScoreCollector:
            return ScoreCollector(batch, self._softmax, num_directions, choice)

        return self._read_all(words, state, batch_size, collect)

    def _used_directions(self, direction: Direction) -> tuple[str, ...]:
        """Check the argument `direction` of `substitutes`, and return the directions to use."""
        if direction not in get_args(Direction):
            names = ", ".join(get_args(Direction))
            raise ConfigError(f"direction is {direction!r}; it must be one of: {names}")
        if direction != "forward" and self._model.config.num_directions == 1:
            raise ConfigError(
                f'direction is {direction!r}, but this model has only "forward"; use that'
            )
        return ("forward", "backward") if direction == "both" else (direction,)

    @torch.inference_mode()
    def _most_likely(
        self, hidden: Tensor, count: int, include_special: bool
    ) -> list[list[Substitute]]:
        """Return the most likely words for the vectors (directions, rows, dim) of each row."""
        vocabulary = self._softmax.vocabulary
        left_out = () if include_special else SPECIAL_WORDS
        size = min(count + len(left_out), len(vocabulary))
        parts = [hidden]
        if self.limits.batch_invariant:
            # Copies, because a product may depend on the alignment of its operands.
            parts = [own.clone() for own in hidden.split(1, dim=1)]
        found = [self._softmax.most_likely(part, size) for part in parts]
        log_probabilities, ids = (torch.cat(tensors) for tensors in zip(*found, strict=True))
        probabilities = log_probabilities.exp().tolist()
        results = []
        for own_ids, own in zip(ids.tolist(), probabilities, strict=True):
            words = [vocabulary.words[i] for i in own_ids]
            pairs = [Substitute(*pair) for pair in zip(words, own, strict=True)]
            results.append([pair for pair in pairs if pair.word not in left_out][:count])
        return results


def _checked_positions(
    words: Sequence[Sequence[str]], positions: Sequence[int], direction: Direction
) -> list[int]:
    """Return the positions of `substitutes` as a list of integers, one for each sentence."""
    if len(positions) != len(words):
        raise ConfigError(
            f"there are {len(positions)} positions and {len(words)} sentences; pass one position "
            "for each sentence"
        )
    result = [integer(f"position {i}", position) for i, position in enumerate(positions)]
    for i, (sentence, position) in enumerate(zip(words, result, strict=True)):
        last = len(sentence) if direction == "forward" else len(sentence) - 1
        if not 0 <= position <= last:
            raise ConfigError(
                f"position {i} is {position}; sentence {i} has {len(sentence)} words, so it must "
                f"be from 0 to {last}"
            )
    return result
