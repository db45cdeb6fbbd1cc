"""The layers of a masked LM: a vector per word from the vectors of its pieces.

The model was trained on rows of 128 pieces and has as many positions. A longer text is read in
windows that overlap; each word is taken from the window in which it has most context.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from bilm.errors import CheckpointError
from experiments.comparison.features import FloatArray, Words
from experiments.comparison.masked_model import open_model
from experiments.comparison.pieces import ROW_PIECES, Pieces

Pooling = Literal["mean", "first"]

WINDOW_PIECES = ROW_PIECES - 2  # without [CLS] and [SEP]

CONTEXT_PIECES = 32  # of overlap on each side

BATCH_PIECES = 4096


class Window(NamedTuple):
    """Words `start:stop` of a text are read, and `keep_start:keep_stop` are kept."""

    start: int
    stop: int
    keep_start: int
    keep_stop: int


def windows_of(counts: Sequence[int]) -> Iterator[Window]:
    """Yield the windows of a text whose words have these numbers of pieces.

    A count must not exceed `WINDOW_PIECES`.
    """
    edges = np.cumsum([0, *counts])  # of the words, in pieces
    total = len(counts)
    keep_start = 0
    while keep_start < total:
        start = int(np.searchsorted(edges, edges[keep_start] - CONTEXT_PIECES, side="left"))
        stop = _last_edge(edges, edges[start] + WINDOW_PIECES)
        if stop <= keep_start:  # the context leaves too little room for the next word
            start, stop = keep_start, _last_edge(edges, edges[keep_start] + WINDOW_PIECES)
        keep_stop = total
        if stop < total:
            keep_stop = max(_last_edge(edges, edges[stop] - CONTEXT_PIECES), keep_start + 1)
        yield Window(start, stop, keep_start, keep_stop)
        keep_start = keep_stop


def _last_edge(edges: npt.NDArray[np.int64], limit: int) -> int:
    """Return the place of the last edge that is at most `limit`."""
    return int(np.searchsorted(edges, limit, side="right")) - 1


def pooled_pieces(pieces: FloatArray, counts: Sequence[int], pooling: Pooling) -> FloatArray:
    """Return a vector per word (layers, words, dim) from its pieces (layers, pieces, dim)."""
    starts = np.cumsum([0, *counts[:-1]])
    if pooling == "first":
        return pieces[:, starts]
    sums = np.add.reduceat(pieces, starts, axis=1)
    sums /= np.asarray(counts, dtype=np.float32)[None, :, None]
    return sums


class MaskedFeatures:
    """All layers of a masked LM: the embeddings and each transformer layer."""

    def __init__(self, model: Any, pieces: Pieces, pooling: Pooling) -> None:
        if pooling not in ("mean", "first"):
            raise CheckpointError(f"the pooling is {pooling!r}; it must be 'mean' or 'first'")
        self._bert, self._pieces, self._pooling = model.bert.eval(), pieces, pooling
        self.num_layers = model.config.num_hidden_layers + 1
        self.dim = model.config.hidden_size
        self.num_parameters = sum(p.numel() for p in self._bert.parameters())

    @classmethod
    def open(cls, directory: Path, pooling: Pooling) -> MaskedFeatures:
        """Open the output directory of a training run."""
        return cls(open_model(directory / "model"), Pieces.open(directory), pooling)

    def words(self, sentences: Sequence[Words]) -> list[FloatArray]:
        spelled = [[self._pieces.of_word(w)[:WINDOW_PIECES] for w in words] for words in sentences]
        results = [
            np.zeros((self.num_layers, len(words), self.dim), np.float32) for words in sentences
        ]
        jobs = [
            (i, window)
            for i, words in enumerate(spelled)
            for window in windows_of([len(ids) for ids in words])
        ]
        texts = [[p for ids in spelled[i][w.start : w.stop] for p in ids] for i, w in jobs]
        for batch in _batches([len(text) for text in texts]):
            layers = self._layers([texts[j] for j in batch])
            for row, j in enumerate(batch):
                i, window = jobs[j]
                counts = [len(ids) for ids in spelled[i][window.start : window.stop]]
                own = layers[:, row, 1 : 1 + len(texts[j])]
                vectors = pooled_pieces(own, counts, self._pooling)
                first = window.keep_start - window.start
                kept = vectors[:, first : first + window.keep_stop - window.keep_start]
                results[i][:, window.keep_start : window.keep_stop] = kept
        return results

    def _layers(self, texts: Sequence[Sequence[int]]) -> FloatArray:
        width = max(map(len, texts)) + 2
        ids = np.full((len(texts), width), self._pieces.pad, np.int64)
        for row, text in enumerate(texts):
            ids[row, : len(text) + 2] = [self._pieces.cls, *text, self._pieces.sep]
        inputs = torch.from_numpy(ids)
        with torch.inference_mode():
            hidden = self._bert(
                input_ids=inputs,
                attention_mask=(inputs != self._pieces.pad).long(),
                output_hidden_states=True,
            ).hidden_states
        layers: FloatArray = torch.stack(hidden).numpy()  # (layers, texts, pieces, dim)
        return layers


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield places of texts of similar length, at most `BATCH_PIECES` with padding."""
    batch: list[int] = []
    for j in sorted(range(len(lengths)), key=lambda j: lengths[j]):
        if batch and (len(batch) + 1) * (lengths[j] + 2) > BATCH_PIECES:
            yield batch
            batch = []
        batch.append(j)
    if batch:
        yield batch
