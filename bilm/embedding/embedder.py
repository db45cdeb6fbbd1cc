"""Contextual word vectors of sentences, from a frozen biLM.

Sentences of similar length share a batch, whose size is bounded in words, not in sentences. Each
word is encoded once (`EncodedWords`), and the LSTMs compute nothing for rows that have ended. A
sentence longer than a batch is read in chunks with carried state, each direction from its own end:
the recurrence, and therefore the result, is the same.

Memory, besides the model: the words and results of a window (`Limits.window_words`), the layers of
a batch, and the table of encoded words; the last two are on the device. None of these grows with
the number of sentences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bilm.embedding.collector import Collector
from bilm.embedding.encoded_words import EncodedWords
from bilm.embedding.output import ALL_WORD_LAYERS, FloatArray, Output
from bilm.embedding.sentence_batches import length_batches, windows
from bilm.model.bilstm import BiLstmState
from bilm.model.devices import choose_device, copy_module_to, copy_to_device
from bilm.model.precision import Precision, check_precision, precision_context
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.characters import BEGIN_SENTENCE_WORD, END_SENTENCE_WORD
from bilm.text.tokenizers import require_tokenizer

StateMode = Literal["reset", "carry", "warm"]

Words = Sequence[str] | npt.NDArray[Any]  # the words of one sentence


@dataclass(frozen=True)
class Limits:
    """Bounds of the embedder's memory; the defaults were the fastest values measured.

    Args:
        batch_words: words to compute together, including padding and boundary tokens.
        window_words: words to read ahead, to find sentences of similar length.
        cached_words: words whose encoder vectors are kept.
    """

    batch_words: int = 4096
    window_words: int = 32768
    cached_words: int = 100_000

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")


DEFAULT_LIMITS = Limits()


class Embedder:
    """Computes one array per sentence, by default (layers + 1, words, 2 x dim).

    Layer 0 is the token encoder's vector, twice; layer l is `[forward_l; backward_l]`. `Output`
    selects other forms: a mix of layers, pooled sentences, float16.

    Several threads may share an embedder, except for `state="carry"`, where the order of the calls
    determines the vectors.

    Args:
        pretrained: the model. If it is on another device, its weights are copied as they are now;
            otherwise the embedder shares them.
        limits: bounds of the memory.
        device: such as "cpu" or "cuda:1"; by default, the accelerator if there is one, else the
            CPU.
        precision: "float32", "tf32" or "bfloat16" for matrix products. The LSTM states and the
            results are float32.
    """

    def __init__(
        self,
        pretrained: PretrainedBiLm,
        limits: Limits = DEFAULT_LIMITS,
        device: str | torch.device | None = None,
        precision: Precision = "float32",
    ) -> None:
        check_precision(precision)
        self.pretrained = pretrained
        self.limits = limits
        self.device = choose_device(device)
        self.precision: Precision = precision
        self._model = pretrained.model
        # A copy without dropout: the caller's model keeps its mode.
        self._bilstm = copy_module_to(self._model.bilstm, self.device).eval()
        encoder = copy_module_to(self._model.encoder, self.device)
        self._encoded_words = EncodedWords(pretrained, limits.cached_words, encoder, precision)
        self._carried: BiLstmState | None = None

    @classmethod
    def from_pretrained(
        cls,
        directory: Path | str,
        limits: Limits = DEFAULT_LIMITS,
        device: str | torch.device | None = None,
        precision: Precision = "float32",
    ) -> Embedder:
        """Read a model: a run, a model directory, published files, or a name (`bilm models`).

        `PretrainedBiLm.open` describes them.
        """
        return cls(PretrainedBiLm.open(directory), limits, device, precision)

    @classmethod
    def from_published(
        cls,
        options_json: Path | str,
        weights_hdf5: Path | str,
        vocabulary: Path | str | None = None,
        limits: Limits = DEFAULT_LIMITS,
        device: str | torch.device | None = None,
        precision: Precision = "float32",
    ) -> Embedder:
        """Read published files. Only a model with word ids needs the vocabulary."""
        pretrained = PretrainedBiLm.from_published(options_json, weights_hdf5, vocabulary)
        return cls(pretrained, limits, device, precision)

    @property
    def num_layers(self) -> int:
        """The number of layers that `embed` returns: the token encoder's and each LSTM's."""
        return self._model.config.lstm.num_layers + 1

    @property
    def dim(self) -> int:
        """The width of a vector that `embed` returns."""
        return self._model.config.lstm.projection_dim * self._model.config.num_directions

    def reset_state(self) -> None:
        """Reset the LSTM states that `state="carry"` carries from call to call."""
        self._carried = None

    def pin_words(self, words: Iterable[str]) -> None:
        """Make a window's vectors independent of earlier windows; see `EncodedWords.pin`."""
        self._encoded_words.pin([BEGIN_SENTENCE_WORD, END_SENTENCE_WORD, *words])

    def embed(
        self,
        sentences: Sequence[Words | str] | npt.NDArray[Any],
        state: StateMode = "reset",
        batch_size: int = 32,
        output: Output = ALL_WORD_LAYERS,
    ) -> list[FloatArray]:
        """Return one array per sentence, in the order given.

        Args:
            sentences: lists or arrays of words, or raw strings if the model has a tokenizer.
            state: the LSTM state at the beginning of a sentence.
                "reset": zero. A sentence gets the same vectors regardless of the other sentences.
                "warm": the state after reading the same sentence once. As reproducible as "reset",
                without the zero state, which does not occur in training; costs twice as much.
                "carry": the state after the previous sentence, as in training and in the original
                implementation. Sentence i is read by row i % batch_size, and the rows keep their
                states from call to call.
            batch_size: the number of rows for "carry"; otherwise `Limits` determines the batches.
            output: the form of the results: layers or a mix, words or pooled, the dtype.
        """
        self._check(state, batch_size, output)
        words = list(self._words_of(sentences))  # check all sentences before any state changes
        return list(self._arrays(words, state, batch_size, output))

    def stream(
        self,
        sentences: Iterable[Words | str],
        state: StateMode = "reset",
        batch_size: int = 32,
        output: Output = ALL_WORD_LAYERS,
    ) -> Iterator[FloatArray]:
        """Yield the arrays of `embed` for any number of sentences; one window is in memory."""
        self._check(state, batch_size, output)
        return self._arrays(self._words_of(sentences), state, batch_size, output)

    def _check(self, state: StateMode, batch_size: int, output: Output) -> None:
        if state not in get_args(StateMode):
            raise ValueError(f"state is {state!r}; it must be one of {get_args(StateMode)}")
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}; it must be at least 1")
        output.check(self.num_layers)

    def _words_of(self, sentences: Iterable[Words | str]) -> Iterator[Sequence[str]]:
        if isinstance(sentences, str):
            raise TypeError("embed takes a list of sentences; for one sentence, pass [sentence]")
        for i, sentence in enumerate(sentences):
            if isinstance(sentence, np.ndarray):
                sentence = sentence.tolist()
            if isinstance(sentence, str):
                model = f"sentence {i} is a string, but this model"
                tokenizer = require_tokenizer(
                    self.pretrained.tokenizer, "pass lists of words", model, ValueError
                )
                sentence = tokenizer.tokenize(sentence)
            if not isinstance(sentence, Sequence):
                raise TypeError(f"sentence {i} is {sentence!r}; it must be a list of words")
            for word in sentence:
                if not isinstance(word, str):
                    raise TypeError(f"sentence {i} contains {word!r}, which is not a string")
            yield sentence

    def _arrays(
        self, words: Iterable[Sequence[str]], state: StateMode, batch_size: int, output: Output
    ) -> Iterator[FloatArray]:
        if state == "carry":
            iterator = iter(words)
            while sentences := list(islice(iterator, batch_size)):
                yield from self._carry(sentences, batch_size, output)
            return
        for window in windows(words, self.limits.window_words):
            self._encoded_words.add(word for sentence in window for word in sentence)
            results: dict[int, FloatArray] = {}
            lengths = [len(sentence) + 2 for sentence in window]
            for indices in length_batches(lengths, self.limits.batch_words):
                batch = [_with_boundaries(window[i]) for i in indices]
                start = self._bilstm.zero_state(len(batch))
                if state == "warm":
                    _, start = self._read(batch, start, None)
                arrays, _ = self._read(batch, start, output)
                results.update(zip(indices, arrays, strict=True))
            for i in range(len(window)):
                yield results.pop(i)  # pop, to keep no reference

    def _carry(
        self, sentences: list[Sequence[str]], batch_size: int, output: Output
    ) -> list[FloatArray]:
        """Read sentence i in row i, from the carried state, and carry the state after it."""
        before = self._carried or self._bilstm.zero_state(batch_size)
        if before.cell.shape[2] != batch_size:
            raise ValueError(
                f"batch_size is {batch_size}, but the carried state has {before.cell.shape[2]} "
                "rows; use the same batch_size, or call reset_state() first"
            )
        order = sorted(range(len(sentences)), key=lambda i: -len(sentences[i]))
        batch = [_with_boundaries(sentences[i]) for i in order]
        arrays, after = self._read(batch, before.take_rows(order), output)
        inverse = sorted(range(len(order)), key=order.__getitem__)
        rest = before.rows(len(sentences), batch_size)
        self._carried = BiLstmState.join_rows([after.take_rows(inverse), rest])
        return [arrays[i] for i in inverse]

    @torch.inference_mode()
    def _read(
        self, batch: list[list[str]], state: BiLstmState, output: Output | None
    ) -> tuple[list[FloatArray], BiLstmState]:
        """Run sentences with boundary tokens, longest first, in chunks of the word budget.

        Returns the arrays (none without `output`) and the state after each sentence's last token.
        """
        config = self._model.config
        collector = Collector(
            output or Output(pool="mean"),
            [len(tokens) - 2 for tokens in batch],
            self.num_layers,
            config.num_directions,
            config.lstm.projection_dim,
        )
        lengths = torch.tensor([len(tokens) for tokens in batch])
        steps = max(1, self.limits.batch_words // len(batch))
        for start in range(0, len(batch[0]), steps):
            rows = int((lengths > start).sum())  # rows that have not ended
            left = (lengths[:rows] - start).clamp(max=steps)
            inputs = self._inputs(batch[:rows], start, int(left[0]))
            with precision_context(self.device, self.precision):
                remaining = copy_to_device(left, self.device)
                outputs, after = self._bilstm(inputs, state.rows(0, rows), remaining)
            state = BiLstmState.join_rows([after, state.rows(rows, len(batch))])
            if output is not None:
                for direction, layers in enumerate(outputs):
                    own = inputs[direction]
                    collector.add(direction, start, [own, *(x.to(own.dtype) for x in layers)])
        return collector.results() if output is not None else [], state

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


def _with_boundaries(sentence: Sequence[str]) -> list[str]:
    return [BEGIN_SENTENCE_WORD, *sentence, END_SENTENCE_WORD]
