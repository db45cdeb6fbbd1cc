"""Compute the layers of a frozen biLM for texts, per word or pooled over the words of a text.

The states of the biLM start at zero for each text. The embedder reads several texts at once, within
a limit of words, so memory does not grow with their number.

A text of more than `max_words` words is truncated, or read in windows: it is cut into as few parts
of at most `max_words` words as possible, of nearly equal length and without overlap, and the states
of the biLM start at zero for each part. A shorter text is one window, so its vectors are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from bilm.embedding.embedder import Embedder
from bilm.embedding.output import ALL_WORD_LAYERS, Output
from bilm.errors import CorpusError
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.tokenizers import require_tokenizer
from downstream.settings.progress import Progress
from downstream.settings.sections import DEFAULT_MAX_WORDS, LongTexts

WordLayers = npt.NDArray[np.float32]  # (words, layers, dim) of one text
PooledLayers = npt.NDArray[np.float32]  # (poolings, layers, dim) of one text

Texts = Sequence[str] | Sequence[Sequence[str]]  # raw texts, or the words of each text

POOLINGS = ("mean", "max")

UNLIMITED_WORDS = 2**31 - 1

_POOLINGS_OF_HEADS = {"mean": ("mean",), "max": ("max",), "mean_max": ("mean", "max")}


@dataclass(frozen=True)
class TextReading:
    """How to read texts: whether they are already tokenized, and what is done with long ones."""

    tokenized: bool = False
    max_words: int = DEFAULT_MAX_WORDS
    long_texts: LongTexts = "cut"

    @property
    def max_text_words(self) -> int:
        """The maximum number of words of a text; the words after them are dropped."""
        return self.max_words if self.long_texts == "cut" else UNLIMITED_WORDS


def tokenize(
    pretrained: PretrainedBiLm | None,
    texts: Texts,
    reading: TextReading,
    progress: Progress = Progress("tokenizing", False),  # noqa: B008
) -> list[list[str]]:
    """Return the words of each text, truncated if `reading` states it; reject a text without words.

    A text that is a list of words is not tokenized. Texts that are already tokenized need no biLM.
    """
    if reading.tokenized:
        split: Callable[[str], list[str]] = str.split
    else:
        remedy = "tokenize the texts, separate words by spaces, and pass --tokenized"
        tokenizer = None if pretrained is None else pretrained.tokenizer
        split = require_tokenizer(tokenizer, remedy).tokenize
    result: list[list[str]] = []
    for text in progress.bar("texts", items=texts, total=len(texts)):
        words = (split(text) if isinstance(text, str) else list(text))[: reading.max_text_words]
        if not words:
            raise CorpusError(f"text {len(result) + 1} ({text[:60]!r}) has no words; remove it")
        result.append(words)
    return result


def window_lengths(num_words: int, max_words: int) -> list[int]:
    """Return the lengths of the windows of a text; a text without words has one window."""
    count = max(1, -(-num_words // max_words))
    return [(i + 1) * num_words // count - i * num_words // count for i in range(count)]


def text_windows(words: Sequence[str], max_words: int) -> Iterator[Sequence[str]]:
    """Yield the windows of a text."""
    start = 0
    for length in window_lengths(len(words), max_words):
        yield words[start : start + length]
        start += length


def _by_text(
    embedder: Embedder, texts: Sequence[Sequence[str]], max_words: int, output: Output
) -> Iterator[list[npt.NDArray[np.float32]]]:
    """Yield the arrays of the windows of each text."""
    windows = (window for words in texts for window in text_windows(words, max_words))
    arrays = embedder.stream(windows, output=output)
    for words in texts:
        yield list(islice(arrays, len(window_lengths(len(words), max_words))))


def stream_words(
    embedder: Embedder, texts: Sequence[Sequence[str]], max_words: int = UNLIMITED_WORDS
) -> Iterator[WordLayers]:
    """Yield every layer of every word: one array (words, layers, dim) per text.

    Texts of more than `max_words` words are read in windows.
    """
    for windows in _by_text(embedder, texts, max_words, ALL_WORD_LAYERS):
        layers = windows[0] if len(windows) == 1 else np.concatenate(windows, axis=1)
        yield layers.transpose(1, 0, 2)


def stream_pooled(
    embedder: Embedder, texts: Sequence[Sequence[str]], max_words: int = UNLIMITED_WORDS
) -> Iterator[PooledLayers]:
    """Yield the mean and the maximum of every layer over the words, (2, layers, dim) per text.

    The embedder pools as it reads, in float64; it does not keep the words. A text without words
    gives zeros. Texts of more than `max_words` words are read in windows.
    """
    output = Output(pool="mean_max")
    for words, windows in zip(texts, _by_text(embedder, texts, max_words, output), strict=True):
        # (layers, 2 * dim) to (2, layers, dim)
        parts = [w.reshape(len(w), 2, -1).transpose(1, 0, 2) for w in windows]
        if len(parts) == 1:
            yield parts[0]
            continue
        weights = window_lengths(len(words), max_words)
        mean = np.average([part[0] for part in parts], axis=0, weights=weights)  # in float64
        yield np.stack([mean, np.max([part[1] for part in parts], axis=0)]).astype(np.float32)


def pooled_layers(
    embedder: Embedder, texts: Sequence[Sequence[str]], max_words: int = UNLIMITED_WORDS
) -> npt.NDArray[np.float32]:
    """Return the pooled layers of all texts (texts, 2, layers, dim)."""
    result = np.empty((len(texts), 2, embedder.num_layers, embedder.dim), dtype=np.float32)
    for i, pooled in enumerate(stream_pooled(embedder, texts, max_words)):
        result[i] = pooled
    return result


def pool_words(words: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the mean and the maximum over words (words, ...) that are in memory: (2, ...).

    The mean is accumulated in float64, as in the embedder.
    """
    return np.stack([words.mean(axis=0, dtype=np.float64), words.max(axis=0)]).astype(np.float32)


def poolings_of(head: str) -> list[int]:
    """Return the indices into `POOLINGS` that a head reads; none for a head that reads words."""
    return [POOLINGS.index(name) for name in _POOLINGS_OF_HEADS.get(head, ())]
