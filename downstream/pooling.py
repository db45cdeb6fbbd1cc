"""One vector a text: the layers of its words, mixed with fixed shares, and pooled over the words.

Texts are read in groups of a bounded number of words, so that memory does not grow with their
number; an array of all words of all layers is never made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from bilm.embedder import Embedder, StateMode, Vectors

Pooled = npt.NDArray[np.float32]  # (texts, features)
POOLINGS: dict[str, tuple[Callable[..., Pooled], ...]] = {
    "mean": (np.mean,),
    "max": (np.max,),
    "mean_max": (np.mean, np.max),
}
_GROUP_WORDS = 20_000  # words whose layers are in memory at a time


def pool(words: npt.NDArray[np.float32], pooling: str) -> Pooled:
    """Vectors (words, dim) to one of dim, or twice that for "mean_max"; no words give zeros."""
    functions = POOLINGS[pooling]
    if len(words) == 0:
        return np.zeros(words.shape[1] * len(functions), dtype=np.float32)
    return np.concatenate([function(words, axis=0) for function in functions])


def pooled_texts(
    embedder: Embedder,
    texts: Sequence[Sequence[str]],
    mix: Callable[[Vectors], npt.NDArray[np.float32]],
    pooling: str,
    *,
    state: StateMode = "reset",
    batch_size: int = 32,
) -> Iterator[Pooled]:
    """The vector of each text, in order. A text is a list of words; `mix` makes the layers
    (layers, words, dim) of a text into one vector a word.
    """
    for group in _groups(texts):
        for layers in embedder.embed(group, state, batch_size):
            yield pool(mix(layers), pooling)


def _groups(texts: Sequence[Sequence[str]]) -> Iterator[list[Sequence[str]]]:
    group: list[Sequence[str]] = []
    num_words = 0
    for text in texts:
        if group and num_words + len(text) > _GROUP_WORDS:
            yield group
            group, num_words = [], 0
        group.append(text)
        num_words += len(text)
    if group:
        yield group
