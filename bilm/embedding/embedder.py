"""Contextual word vectors of sentences, from a frozen biLM.

Sentences of like length share a batch, bounded in words, not in sentences; each word goes through
the encoder once (`bilm/word_vectors.py`); the LSTMs compute nothing for rows that have ended. A
sentence longer than a batch is read in chunks with carried state, each direction from its own end:
the same recurrence, so the same numbers.

Memory, beyond the model: a window's words and results (`Limits.window_words`), a batch's layers,
and the table of words. None of it grows with the number of sentences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from bilm.embedding.collector import Collector
from bilm.embedding.encoded_words import WordVectors
from bilm.embedding.output import FloatArray, Output
from bilm.embedding.sentence_batches import length_batches, windows
from bilm.errors import CheckpointError
from bilm.model.bilstm import BiLstmState
from bilm.model.language_model import BiLm
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.characters import BEGIN_SENTENCE_WORD, END_SENTENCE_WORD, char_ids
from bilm.text.tokenizers import require_tokenizer

StateMode = Literal["reset", "carry", "warm"]

Vectors = npt.NDArray[np.float32]  # (layers + 1, words, directions * dim)


@dataclass(frozen=True)
class Limits:
    """What bounds the embedder's memory; the defaults were the fastest of those measured.

    Args:
        batch_words: words computed together, padding and border tokens included.
        window_words: words read ahead of the results, to find sentences of like length.
        cached_words: words whose encoder vectors are kept.
    """

    batch_words: int = 4096
    window_words: int = 32768
    cached_words: int = 100_000

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")


class Embedder:
    """Sentences to one array each, by default (layers + 1, words, 2 x dim).

    Layer 0 is the token encoder's vector, twice; layer l is `[forward_l; backward_l]`. What else
    can be had (a mix of layers, pooled sentences, float16) says `Output`.
    """

    def __init__(self, pretrained: PretrainedBiLm, limits: Limits = Limits()) -> None:  # noqa: B008
        self.pretrained = pretrained
        self.limits = limits
        self._model = pretrained.model.eval()
        if self._model.config.characters is None and pretrained.vocabulary is None:
            raise CheckpointError("this model reads word ids; its vocabulary file is needed too")
        self._vectors = WordVectors(self._model.encoder, self._encoder_input, limits.cached_words)
        self._carried: BiLstmState | None = None

    @classmethod
    def from_pretrained(cls, directory: Path | str, limits: Limits = Limits()) -> Embedder:  # noqa: B008
        """From a model directory of ours."""
        return cls(PretrainedBiLm.from_pretrained(directory), limits)

    @classmethod
    def from_published(
        cls,
        options_json: Path | str,
        weights_hdf5: Path | str,
        vocabulary: Path | str | None = None,
        limits: Limits = Limits(),  # noqa: B008
    ) -> Embedder:
        """From the published files. Only a model of word ids needs the vocabulary."""
        return cls(PretrainedBiLm.from_published(options_json, weights_hdf5, vocabulary), limits)

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
        output: Output = Output(),  # noqa: B008
    ) -> list[FloatArray]:
        """One array per sentence, in the order given; `stream` does the same for any number.

        Args:
            sentences: lists of words; raw strings too, if the model knows its tokeniser.
            state: what the LSTMs remember when a sentence begins.
                "reset": nothing. The same sentence always has the same vectors, whatever stands
                beside it.
                "warm": the sentence itself, read once before. As repeatable as "reset", without
                the cold start, which training never saw; costs twice as much.
                "carry": what stood before it, as in training and in the original: sentence i is
                read by row i % batch_size, and the rows remember, also from call to call.
            batch_size: rows of "carry"; elsewhere `Limits` decides what is computed together.
            output: what is returned: layers or a mix, words or pooled, the precision.
        """
        self._check(state, batch_size, output)
        words = list(self._words_of(sentences))  # all is checked before anything is carried on
        return list(self._arrays(words, state, batch_size, output))

    def stream(
        self,
        sentences: Iterable[Sequence[str] | str],
        state: StateMode = "reset",
        batch_size: int = 32,
        output: Output = Output(),  # noqa: B008
    ) -> Iterator[FloatArray]:
        """The same one by one, for any number of sentences: only a window of them is in memory."""
        self._check(state, batch_size, output)
        return self._arrays(self._words_of(sentences), state, batch_size, output)

    def _check(self, state: StateMode, batch_size: int, output: Output) -> None:
        if state not in get_args(StateMode):
            raise ValueError(f"state is {state!r}; it must be one of {get_args(StateMode)}")
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}; it must be at least 1")
        output.check(self.num_layers)

    def _words_of(self, sentences: Iterable[Sequence[str] | str]) -> Iterator[Sequence[str]]:
        if isinstance(sentences, str):
            raise TypeError("embed takes a list of sentences; for one sentence, pass [sentence]")
        for i, sentence in enumerate(sentences):
            if isinstance(sentence, str):
                model = f"sentence {i} is a string, but this model"
                tokenizer = require_tokenizer(
                    self.pretrained.tokenizer, "pass lists of words", model, ValueError
                )
                sentence = tokenizer.tokenize(sentence)
            if not isinstance(sentence, Sequence):
                raise TypeError(f"sentence {i} is {sentence!r}; a list of words is expected")
            for word in sentence:
                if not isinstance(word, str):
                    raise TypeError(f"sentence {i} has {word!r}, which is not a string")
            yield sentence

    def _arrays(
        self, words: Iterable[Sequence[str]], state: StateMode, batch_size: int, output: Output
    ) -> Iterator[FloatArray]:
        if state == "carry":
            iterator = iter(words)
            while sentences := list(islice(iterator, batch_size)):
                yield from self._carry_on(sentences, batch_size, output)
            return
        for window in windows(words, self.limits.window_words):
            self._vectors.add(word for sentence in window for word in sentence)
            results: dict[int, FloatArray] = {}
            lengths = [len(sentence) + 2 for sentence in window]
            for indices in length_batches(lengths, self.limits.batch_words):
                batch = [_with_borders(window[i]) for i in indices]
                start = self._model.zero_state(len(batch))
                if state == "warm":
                    _, start = self._read(batch, start, None)
                arrays, _ = self._read(batch, start, output)
                results.update(zip(indices, arrays, strict=True))
            for i in range(len(window)):
                yield results.pop(i)  # the caller's from here on

    def _carry_on(
        self, sentences: list[Sequence[str]], batch_size: int, output: Output
    ) -> list[FloatArray]:
        """Row i reads sentence i from where it stands, and stays where that ends."""
        before = self._carried or self._model.zero_state(batch_size)
        if before.cell.shape[2] != batch_size:
            raise ValueError(
                f"batch_size is {batch_size}, but {before.cell.shape[2]} rows are being "
                "carried; keep the number, or call reset_state() first"
            )
        order = sorted(range(len(sentences)), key=lambda i: -len(sentences[i]))
        batch = [_with_borders(sentences[i]) for i in order]
        arrays, after = self._read(batch, before.take_rows(order), output)
        back = sorted(range(len(order)), key=order.__getitem__)
        rest = before.rows(len(sentences), batch_size)
        self._carried = BiLstmState.join_rows([after.take_rows(back), rest])
        return [arrays[i] for i in back]

    @torch.inference_mode()
    def _read(
        self, batch: list[list[str]], state: BiLstmState, output: Output | None
    ) -> tuple[list[FloatArray], BiLstmState]:
        """Run sentences, borders included, in falling length, in chunks of the word budget.

        Returns their arrays (none without `output`) and the state after each one's last token.
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
            rows = int((lengths > start).sum())  # those that have not ended
            left = (lengths[:rows] - start).clamp(max=steps)
            inputs = self._inputs(batch[:rows], start, int(left[0]))
            outputs, after = self._model.bilstm(inputs, state.rows(0, rows), left)
            state = BiLstmState.join_rows([after, state.rows(rows, len(batch))])
            if output is not None:
                for direction, layers in enumerate(outputs):
                    collector.add(direction, start, [inputs[direction], *layers])
        return collector.results() if output is not None else [], state

    def _inputs(self, batch: list[list[str]], start: int, steps: int) -> tuple[Tensor, ...]:
        """Word vectors (time, rows, dim) by direction, of the steps from `start` on."""
        words: list[str] = []
        for direction in range(self._model.config.num_directions):
            for tokens in batch:
                if direction == 0:
                    part = tokens[start : start + steps]
                else:
                    end = len(tokens) - start
                    part = tokens[max(0, end - steps) : end][::-1]
                words += part
                words += [END_SENTENCE_WORD] * (steps - len(part))  # padding: any word will do
        slots = torch.from_numpy(self._vectors.slots(words)).view(-1, len(batch), steps)
        # (directions, time, rows, dim): the LSTMs want time first
        return F.embedding(slots.transpose(1, 2), self._vectors.table).unbind()

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
