"""downstream/features/texts_to_layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from bilm.embedding.embedder import Embedder
from bilm.errors import CorpusError
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.tokenizers import require_tokenizer

Layers = npt.NDArray[np.float32]  # (words, layers, dim)

POOLINGS = ("mean", "max")

_WINDOW_WORDS = 1 << 16


def tokenize(
    pretrained: PretrainedBiLm,
    texts: Sequence[str],
    tokenized: bool,
    max_words: int,
    progress: bool | None = False,
) -> list[list[str]]:
    """The words of each text, cut to `max_words`; every text must have one."""
    if tokenized:
        split: Callable[[str], list[str]] = str.split
    else:
        remedy = "tokenize the texts, separate words by spaces, and pass --tokenized"
        split = require_tokenizer(pretrained.tokenizer, remedy).tokenize
    result: list[list[str]] = []
    for text in tqdm(texts, desc="tokenising", unit=" texts", disable=is_hidden(progress)):
        words = split(text)[:max_words]
        if not words:
            raise CorpusError(f"text {len(result) + 1} ({text[:60]!r}) has no word")
        result.append(words)
    return result


def embed_texts(embedder: Embedder, texts: Sequence[list[str]]) -> list[Layers]:
    """Every layer of every word, one array (words, layers, dim) per text.

    The one place that calls the embedder: states start afresh with each text.
    """
    arrays = embedder.embed(texts, state="reset")
    return [array.transpose(1, 0, 2) for array in arrays]


def pool(layers: Layers) -> Layers:
    """The mean and the maximum over words (2, layers, dim)."""
    return np.stack([layers.mean(axis=0), layers.max(axis=0)])


def windows_of(texts: Sequence[list[str]]) -> Iterator[Sequence[list[str]]]:
    """The texts in order, some 65,000 words at a time: what is computed and held at once."""
    start, count = 0, 0
    for end, words in enumerate(texts):
        count += len(words)
        if count >= _WINDOW_WORDS or end == len(texts) - 1:
            yield texts[start : end + 1]
            start, count = end + 1, 0


def pooled_layers(embedder: Embedder, texts: Sequence[list[str]]) -> Layers:
    """Mean and maximum of every layer (texts, 2, layers, dim); a text without words has zeros."""
    result = np.zeros((len(texts), 2, embedder.num_layers, embedder.dim), dtype=np.float32)
    places = [i for i, words in enumerate(texts) if words]
    done = 0
    for window in windows_of([texts[i] for i in places]) if places else ():
        for layers in embed_texts(embedder, window):
            result[places[done]] = pool(layers)
            done += 1
    return result


def is_hidden(progress: bool | None) -> bool | None:
    """The value of tqdm's `disable`: None shows a bar only on a terminal."""
    return None if progress is None else not progress
