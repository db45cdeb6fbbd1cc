"""Read sentences with the LSTMs of a frozen biLM: the part that `Embedder` and `Scorer` share.

Sentences of similar length share a batch, whose size is bounded in words, not in sentences. Each
word is encoded once (`EncodedWords`), and the LSTMs compute nothing for rows that have ended. A
sentence longer than a batch is read in chunks with carried state, each direction from its own end:
the recurrence, and therefore the result, is the same.

Memory, besides the model: the words and results of a window (`Limits.window_words`), the layers of
a batch, and the table of encoded words; the last two are on the device. None of these grows with
the number of sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, Protocol, TypeVar, get_args

import torch
from torch import Tensor

from bilm.embedding.arguments import integer
from bilm.embedding.encoded_words import MAX_WORDS_PER_CALL, EncodedWords
from bilm.embedding.sentence_batches import length_batches, windows
from bilm.embedding.words import with_boundaries
from bilm.model.bilstm import BiLstmState
from bilm.model.devices import choose_device, copy_module_to, copy_to_device
from bilm.model.precision import Precision, check_precision, precision_context
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.characters import END_SENTENCE_WORD

StateMode = Literal["reset", "carry", "warm"]

Result = TypeVar("Result")
ResultOut = TypeVar("ResultOut", covariant=True)


@dataclass(frozen=True)
class Limits:
    """Bounds of the embedder's memory; the defaults were the fastest values measured.

    Args:
        batch_words: words to compute together, including padding and boundary tokens.
        window_words: words to read ahead, to find sentences of similar length.
        cached_words: words whose encoder vectors are kept.
        batch_invariant: compute each word of the encoder and each sentence of the softmax in a call
            of its own, so that results do not depend on other sentences, not even in the last bit
            (with the C kernels on CPUs).
    """

    batch_words: int = 4096
    window_words: int = 32768
    cached_words: int = 100_000
    batch_invariant: bool = False

    def __post_init__(self) -> None:
        for name in ("batch_words", "window_words", "cached_words"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")


DEFAULT_LIMITS = Limits()


class BatchCollector(Protocol[ResultOut]):
    """Turns the layers of a batch of sentences into one result per sentence."""

    def add(self, direction: int, start: int, layers: Sequence[Tensor]) -> None:
        """Add the layers (time, rows, dim) from step `start` on, in the direction's order."""

    def results(self) -> Sequence[ResultOut]:
        """Return one result per row."""


# Receives the tokens of a batch, with boundary tokens, longest sentence first.
Collect = Callable[[list[list[str]]], BatchCollector[Result]]


class SentenceReader:
    """Runs sentences through a biLM; subclasses collect the results.

    `Embedder` describes the arguments.
    """

    num_unread = 0  # tokens at the end of a sentence, in reading order, that are not read

    def __init__(
        self,
        pretrained: PretrainedBiLm,
        limits: Limits = DEFAULT_LIMITS,
        device: str | torch.device | None = None,
        precision: Precision = "float32",
    ) -> None:
        check_precision(precision)
        if not isinstance(limits, Limits):
            raise TypeError(f"limits is {limits!r:.60}; it must be a Limits")
        self.pretrained = pretrained
        self.limits = limits
        self.device = choose_device(device)
        self.precision: Precision = precision
        self._model = pretrained.model
        # A copy without dropout: the caller's model keeps its mode.
        self._bilstm = copy_module_to(self._model.bilstm, self.device).eval()
        encoder = copy_module_to(self._model.encoder, self.device)
        words_per_call = 1 if limits.batch_invariant else MAX_WORDS_PER_CALL
        self._encoded_words = EncodedWords(
            pretrained, limits.cached_words, encoder, precision, words_per_call
        )
        self._carried: BiLstmState | None = None

    def reset_state(self) -> None:
        """Reset the LSTM states that `state="carry"` carries from call to call."""
        self._carried = None

    def _check_state(self, state: StateMode, batch_size: int) -> None:
        check_state(state)
        if integer("batch_size", batch_size) < 1:
            raise ValueError(f"batch_size is {batch_size}; it must be at least 1")

    def _read_all(
        self,
        words: Iterable[Sequence[str]],
        state: StateMode,
        batch_size: int,
        collect: Collect[Result],
    ) -> Iterator[Result]:
        """Yield the results of all sentences, in the order given."""
        if state == "carry":
            iterator = iter(words)
            while sentences := list(islice(iterator, batch_size)):
                yield from self._carry(sentences, batch_size, collect)
            return
        for window in windows(words, self.limits.window_words):
            self._encoded_words.add(word for sentence in window for word in sentence)
            results: dict[int, Result] = {}
            lengths = [len(sentence) + 2 for sentence in window]
            for indices in length_batches(lengths, self.limits.batch_words):
                batch = [with_boundaries(window[i]) for i in indices]
                start = self._bilstm.zero_state(len(batch))
                if state == "warm":
                    start = self._read(batch, start, None)
                collector = collect(batch)
                self._read(batch, start, collector)
                results.update(zip(indices, collector.results(), strict=True))
            for i in range(len(window)):
                yield results.pop(i)  # pop, to keep no reference

    def _carry(
        self, sentences: list[Sequence[str]], batch_size: int, collect: Collect[Result]
    ) -> list[Result]:
        """Read sentence i in row i, from the carried state, and carry the state after it."""
        before = self._carried or self._bilstm.zero_state(batch_size)
        if before.cell.shape[2] != batch_size:
            raise ValueError(
                f"batch_size is {batch_size}, but the carried state has {before.cell.shape[2]} "
                "rows; use the same batch_size, or call reset_state() first"
            )
        order = sorted(range(len(sentences)), key=lambda i: -len(sentences[i]))
        batch = [with_boundaries(sentences[i]) for i in order]
        collector = collect(batch)
        after = self._read(batch, before.take_rows(order), collector)
        inverse = sorted(range(len(order)), key=order.__getitem__)
        rest = before.rows(len(sentences), batch_size)
        self._carried = BiLstmState.join_rows([after.take_rows(inverse), rest])
        results = collector.results()
        return [results[i] for i in inverse]

    @torch.inference_mode()
    def _read(
        self,
        batch: list[list[str]],
        state: BiLstmState,
        collector: BatchCollector[object] | None,
    ) -> BiLstmState:
        """Run sentences with boundary tokens, longest first, in chunks of the word budget.

        Returns the state after the last token of each sentence that is read.
        """
        lengths = torch.tensor([len(tokens) - self.num_unread for tokens in batch])
        steps = max(1, self.limits.batch_words // len(batch))
        for start in range(0, int(lengths[0]), steps):
            rows = int((lengths > start).sum())  # rows that have not ended
            left = (lengths[:rows] - start).clamp(max=steps)
            inputs = self._inputs(batch[:rows], start, int(left[0]))
            with precision_context(self.device, self.precision):
                remaining = copy_to_device(left, self.device)
                outputs, after = self._bilstm(inputs, state.rows(0, rows), remaining)
            state = BiLstmState.join_rows([after, state.rows(rows, len(batch))])
            if collector is not None:
                for direction, layers in enumerate(outputs):
                    own = inputs[direction]
                    collector.add(direction, start, [own, *(x.to(own.dtype) for x in layers)])
        return state

    def _inputs(self, batch: list[list[str]], start: int, steps: int) -> tuple[Tensor, ...]:
        """Return the word vectors (time, rows, dim) by direction, for the steps from `start`."""
        words: list[str] = []
        for direction in range(self._model.config.num_directions):
            for tokens in batch:
                if direction == 0:
                    part = tokens[start : start + steps]
                else:
                    end = len(tokens) - start
                    part = tokens[max(0, end - steps) : end][::-1]
                words += part
                words += [END_SENTENCE_WORD] * (steps - len(part))  # padding, not read
        return self._encoded_words.lookup(words, len(batch), steps).unbind()


def check_state(state: StateMode) -> None:
    """Reject an unknown state."""
    if state not in get_args(StateMode):
        raise ValueError(f"state is {state!r}; it must be one of {get_args(StateMode)}")
