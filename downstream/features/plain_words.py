"""The words of texts without representations, for heads that read no biLM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bilm.embedding.embedder import Embedder
from downstream.features.store import Store
from downstream.features.texts_to_layers import stream_words


class WordFile(Protocol):
    """The words of a list of texts, with or without the layers of a biLM."""

    types: list[str]
    word_ids: npt.NDArray[Any]
    offsets: npt.NDArray[Any]

    def __len__(self) -> int: ...

    def words_of(self, text: int) -> slice:
        """Return the range of a text's words among the words of all texts."""

    def layers_of(self, places: slice) -> npt.NDArray[Any]:
        """Return the layers (words, layers, dim) of a range of words."""


class PlainWords:
    """Words without layers: their arrays of layers have the shape (words, 0, 0)."""

    def __init__(
        self, types: list[str], word_ids: npt.NDArray[Any], offsets: npt.NDArray[Any]
    ) -> None:
        self.types = types
        self.word_ids = word_ids
        self.offsets = offsets

    @classmethod
    def of_texts(cls, texts: Sequence[Sequence[str]]) -> PlainWords:
        """Return the words of tokenized texts."""
        types: dict[str, int] = {}
        ids = [types.setdefault(word, len(types)) for words in texts for word in words]
        offsets = np.cumsum([0, *(len(words) for words in texts)])
        return cls(list(types), np.array(ids, dtype=np.int32), offsets)

    @classmethod
    def of_store(cls, store: Store) -> PlainWords:
        """Return the words of a store, without its layers."""
        return cls(store.types, store.word_ids, store.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def words_of(self, text: int) -> slice:
        """Return the range of a text's words among the words of all texts."""
        return slice(int(self.offsets[text]), int(self.offsets[text + 1]))

    def layers_of(self, places: slice) -> npt.NDArray[np.float32]:
        """Return an array without layers."""
        return np.zeros((places.stop - places.start, 0, 0), dtype=np.float32)


class WordLayersFile(PlainWords):
    """Words with their layers (words, layers, dim) in memory."""

    def __init__(self, words: PlainWords, layers: npt.NDArray[Any]) -> None:
        super().__init__(words.types, words.word_ids, words.offsets)
        self._layers = layers

    @classmethod
    def computed(cls, texts: Sequence[Sequence[str]], embedder: Embedder) -> WordLayersFile:
        """Return tokenized texts with the layers of a biLM, rounded as in a store."""
        layers = np.concatenate(list(stream_words(embedder, texts)))
        return cls(PlainWords.of_texts(texts), layers.astype(np.float16))

    def layers_of(self, places: slice) -> npt.NDArray[Any]:
        """Return the layers of a range of words."""
        return self._layers[places]
