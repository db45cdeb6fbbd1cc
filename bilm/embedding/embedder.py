"""Contextual word vectors of sentences, from a frozen biLM.

`sentence_reader.py` runs the model and bounds the memory; `collector.py` collects the vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch

from bilm.embedding.collector import Collector
from bilm.embedding.output import ALL_WORD_LAYERS, FloatArray, Output
from bilm.embedding.sentence_reader import DEFAULT_LIMITS as DEFAULT_LIMITS
from bilm.embedding.sentence_reader import Limits as Limits
from bilm.embedding.sentence_reader import SentenceReader
from bilm.embedding.sentence_reader import StateMode as StateMode
from bilm.embedding.words import Words as Words
from bilm.embedding.words import words_of
from bilm.model.precision import Precision
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.characters import BEGIN_SENTENCE_WORD, END_SENTENCE_WORD


class Embedder(SentenceReader):
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
        # Check all sentences before any state changes.
        words = list(words_of(sentences, self.pretrained.tokenizer, "embed"))
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
        words = words_of(sentences, self.pretrained.tokenizer, "embed")
        return self._arrays(words, state, batch_size, output)

    def _check(self, state: StateMode, batch_size: int, output: Output) -> None:
        self._check_state(state, batch_size)
        output.check(self.num_layers)

    def _arrays(
        self, words: Iterable[Sequence[str]], state: StateMode, batch_size: int, output: Output
    ) -> Iterator[FloatArray]:
        config = self._model.config

        def collect(batch: list[list[str]]) -> Collector:
            num_words = [len(tokens) - 2 for tokens in batch]
            dim = config.lstm.projection_dim
            return Collector(output, num_words, self.num_layers, config.num_directions, dim)

        return self._read_all(words, state, batch_size, collect)
