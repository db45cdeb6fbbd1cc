"""Compute the layers of a frozen biLM for texts, per word or pooled over the words of a text.

The states of the biLM start at zero for each text. The embedder reads the texts in windows, so
memory does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bilm.embedding.embedder import Embedder
from bilm.embedding.output import Output
from bilm.errors import CorpusError
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.tokenizers import require_tokenizer
from downstream.settings.progress import Progress
from downstream.settings.sections import DEFAULT_MAX_WORDS

WordLayers = npt.NDArray[np.float32]  # (words, layers, dim) of one text
PooledLayers = npt.NDArray[np.float32]  # (poolings, layers, dim) of one text

Texts = Sequence[str] | Sequence[Sequence[str]]  # raw texts, or the words of each text

POOLINGS = ("mean", "max")

UNLIMITED_WORDS = 2**31 - 1

_POOLINGS_OF_HEADS = {"mean": ("mean",), "max": ("max",), "mean_max": ("mean", "max")}


@dataclass(frozen=True)
class TextReading:
    """How to read texts: whether they are already tokenized, and their maximum length."""

    tokenized: bool = False
    max_words: int = DEFAULT_MAX_WORDS


def tokenize(
    pretrained: PretrainedBiLm | None,
    texts: Texts,
    reading: TextReading,
    progress: Progress = Progress("tokenizing", False),  # noqa: B008
) -> list[list[str]]:
    """Return the first `reading.max_words` words of each text; raise CorpusError if it has none.

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
        words = (split(text) if isinstance(text, str) else list(text))[: reading.max_words]
        if not words:
            raise CorpusError(f"text {len(result) + 1} ({text[:60]!r}) has no words; remove it")
        result.append(words)
    return result


def stream_words(embedder: Embedder, texts: Sequence[Sequence[str]]) -> Iterator[WordLayers]:
    """Yield every layer of every word: one array (words, layers, dim) per text."""
    for layers in embedder.stream(texts):
        yield layers.transpose(1, 0, 2)


def stream_pooled(embedder: Embedder, texts: Sequence[Sequence[str]]) -> Iterator[PooledLayers]:
    """Yield the mean and the maximum of every layer over the words, (2, layers, dim) per text.

    The embedder pools as it reads, in float64; it does not keep the words. A text without words
    gives zeros.
    """
    for pooled in embedder.stream(texts, output=Output(pool="mean_max")):
        # (layers, 2 * dim) to (2, layers, dim)
        yield pooled.reshape(len(pooled), 2, -1).transpose(1, 0, 2)


def pooled_layers(embedder: Embedder, texts: Sequence[Sequence[str]]) -> npt.NDArray[np.float32]:
    """Return the pooled layers of all texts (texts, 2, layers, dim)."""
    result = np.empty((len(texts), 2, embedder.num_layers, embedder.dim), dtype=np.float32)
    for i, pooled in enumerate(stream_pooled(embedder, texts)):
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
