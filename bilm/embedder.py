"""Contextual word vectors of sentences, from a frozen biLM.

Each distinct word of a batch is encoded once; sentences of like length share a batch, so that
little is computed for padding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bilm.bilstm import BiLstmState
from bilm.characters import BEGIN_SENTENCE_WORD, END_SENTENCE_WORD, char_ids
from bilm.model import BiLm
from bilm.pretrained import PretrainedBiLm

StateMode = Literal["reset", "carry", "warm"]
Vectors = npt.NDArray[np.float32]  # (layers + 1, words, directions * dim)


class Embedder:
    """Sentences to one array (layers + 1, words, 2 x dim) each.

    Layer 0 is the token encoder's vector, twice; layer l is `[forward_l; backward_l]`.
    """

    def __init__(self, pretrained: PretrainedBiLm) -> None:
        self.pretrained = pretrained
        self._model = pretrained.model.eval()
        if self._model.config.characters is None and pretrained.vocabulary is None:
            raise ValueError("this model reads word ids; its vocabulary file is needed too")
        self._carried: BiLstmState | None = None

    @classmethod
    def from_pretrained(cls, directory: Path | str) -> Embedder:
        """From a model directory of ours."""
        return cls(PretrainedBiLm.from_pretrained(directory))

    @classmethod
    def from_published(
        cls,
        options_json: Path | str,
        weights_hdf5: Path | str,
        vocabulary: Path | str | None = None,
    ) -> Embedder:
        """From the published files. Only a model of word ids needs the vocabulary."""
        return cls(PretrainedBiLm.from_published(options_json, weights_hdf5, vocabulary))

    @property
    def num_layers(self) -> int:
        """Layers that `embed` returns: the token encoder's and each LSTM's."""
        return self._model.config.lstm.num_layers + 1

    @property
    def dim(self) -> int:
        """Width of a vector that `embed` returns."""
        return self._model.config.lstm.projection_dim * self._model.config.num_directions

    def reset_state(self) -> None:
        """Forget what `state="carry"` has read so far."""
        self._carried = None

    def embed(
        self,
        sentences: Sequence[Sequence[str] | str],
        state: StateMode = "reset",
        batch_size: int = 32,
    ) -> list[Vectors]:
        """One array per sentence, in the order given.

        Args:
            sentences: lists of words; raw strings too, if the model knows its tokeniser.
            state: what the LSTMs remember when a sentence begins.
                "reset": nothing. The same sentence always has the same vectors, whatever stands
                beside it.
                "warm": the sentence itself, read once before. As repeatable as "reset", without
                the cold start, which training never saw; costs twice as much.
                "carry": what stood before it, as in training and in the original: sentence i is
                read by row i % batch_size, and the rows remember, also from call to call.
            batch_size: sentences computed together.
        """
        if state not in get_args(StateMode):
            raise ValueError(f"state is {state!r}; it must be one of {get_args(StateMode)}")
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}; it must be at least 1")
        words = self._words_of(sentences)
        order = list(range(len(words)))
        if state != "carry":
            order.sort(key=lambda i: len(words[i]))
        results: list[Vectors | None] = [None] * len(words)
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            arrays = self._embed_batch([words[i] for i in batch], state, batch_size)
            for i, array in zip(batch, arrays, strict=True):
                results[i] = array
        return [array for array in results if array is not None]

    def _words_of(self, sentences: Sequence[Sequence[str] | str]) -> list[Sequence[str]]:
        if isinstance(sentences, str):
            raise TypeError("embed takes a list of sentences; for one sentence, pass [sentence]")
        result: list[Sequence[str]] = []
        for i, sentence in enumerate(sentences):
            if isinstance(sentence, str):
                if self.pretrained.tokenizer is None:
                    raise ValueError(
                        f"sentence {i} is a string, and this model does not know how its text was "
                        "tokenised; pass lists of words"
                    )
                sentence = self.pretrained.tokenizer.tokenize(sentence)
            if not isinstance(sentence, Sequence):
                raise TypeError(f"sentence {i} is {sentence!r}; a list of words is expected")
            for word in sentence:
                if not isinstance(word, str):
                    raise TypeError(f"sentence {i} has {word!r}, which is not a string")
            result.append(sentence)
        return result

    def _embed_batch(
        self, sentences: list[Sequence[str]], state: StateMode, batch_size: int
    ) -> list[Vectors]:
        ids: dict[str, int] = {}
        indices = [
            np.array([ids.setdefault(w, len(ids)) for w in _with_borders(sentence)])
            for sentence in sentences
        ]
        words = self._encoder_input(list(ids))
        rows = len(sentences)
        if state == "carry":
            before = self._carried or self._model.zero_state(batch_size)
            if before.cell.shape[2] != batch_size:
                raise ValueError(
                    f"batch_size is {batch_size}, but {before.cell.shape[2]} rows are being "
                    "carried; keep the number, or call reset_state() first"
                )
            arrays, after = representations(self._model, words, indices, before.rows(0, rows))
            self._carried = BiLstmState.join_rows([after, before.rows(rows, batch_size)])
            return arrays
        start = self._model.zero_state(rows)
        if state == "warm":
            _, start = representations(self._model, words, indices, start)
        return representations(self._model, words, indices, start)[0]

    def _encoder_input(self, words: list[str]) -> Tensor:
        characters = self._model.config.characters
        if characters is not None:
            return torch.from_numpy(char_ids(words, characters.max_characters)).long()
        vocabulary = self.pretrained.vocabulary
        assert vocabulary is not None  # checked when the embedder was made
        return torch.tensor([vocabulary[word] for word in words])


def representations(
    model: BiLm, words: Tensor, sentences: Sequence[npt.NDArray[np.int64]], state: BiLstmState
) -> tuple[list[Vectors], BiLstmState]:
    """The layers of each sentence, border tokens removed, and the state after its last token.

    `words` is what the encoder takes; a sentence is an array of indices into it, its border
    tokens included. The backward direction reads each sentence reversed by its own length.
    """
    lengths = torch.tensor([len(sentence) for sentence in sentences])
    inverse = torch.zeros(
        model.config.num_directions, len(sentences), int(lengths.max()), dtype=torch.long
    )
    for row, sentence in enumerate(sentences):
        index = torch.from_numpy(sentence)
        inverse[0, row, : len(index)] = index
        if model.config.bidirectional:
            inverse[1, row, : len(index)] = index.flip(0)
    with torch.inference_mode():
        layers, after = model.layers(words, inverse, state, lengths)
        # by direction: (layers, time, rows, dim)
        stacked = [torch.stack(direction).cpu().numpy() for direction in layers]
    return list(_by_sentence(stacked, lengths.tolist())), after


def _by_sentence(
    directions: list[npt.NDArray[np.float32]], lengths: list[int]
) -> Iterator[Vectors]:
    for row, length in enumerate(lengths):
        parts = [direction[:, :length, row] for direction in directions]
        # The backward direction comes in its own order of reading.
        ordered = [part if d == 0 else part[:, ::-1] for d, part in enumerate(parts)]
        yield np.concatenate(ordered, axis=-1)[:, 1:-1].copy()


def _with_borders(sentence: Sequence[str]) -> list[str]:
    return [BEGIN_SENTENCE_WORD, *sentence, END_SENTENCE_WORD]
