"""The token encoder's vectors of the words seen so far, each computed once.

The encoder sees a word's characters and nothing else, so that a vector holds wherever the word
stands. At most `capacity` words are kept (or those of one request, if they are more): when the
table is full, the half that was not asked for the longest is dropped. 4 x dim bytes a word: 51 MB
for 100,000 words at dim 128, 205 MB at 512; the table grows as words come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

ENCODED_TOGETHER = 2048  # words; bounds the encoder's memory when a great many are new


class WordVectors:
    """A table of vectors by word. `encoder_input` turns words into what the encoder takes."""

    def __init__(
        self, encoder: nn.Module, encoder_input: Callable[[list[str]], Tensor], capacity: int
    ) -> None:
        self.capacity = capacity
        self.num_encoded = 0  # words that went through the encoder so far
        self._encoder = encoder
        self._encoder_input = encoder_input
        self._weights = _fingerprint(encoder)
        self.clear()

    def __len__(self) -> int:
        """How many words are kept."""
        return len(self._slots)

    def clear(self) -> None:
        """Forget all words."""
        self._slots: dict[str, int] = {}
        self.table: Tensor = torch.empty(0, 0)  # (room, dim); the first len(self) rows count
        self._asked: npt.NDArray[np.int64] = np.zeros(0, np.int64)  # when, by slot
        self._requests = 0

    @torch.inference_mode()
    def add(self, words: Iterable[str]) -> None:
        """Encode the new ones among many words together: cheaper than a few at each request."""
        self.slots(list(dict.fromkeys(words)))

    def slots(self, words: Sequence[str]) -> npt.NDArray[np.int64]:
        """Each word's row in `table`, which holds until the next request."""
        weights = _fingerprint(self._encoder)
        if weights != self._weights:  # the encoder has been trained or reloaded since
            self.clear()
            self._weights = weights
        self._requests += 1
        new = [word for word in dict.fromkeys(words) if word not in self._slots]
        if new:
            self._make_room(words, len(new))
            self._encode(new)
        found = np.fromiter((self._slots[word] for word in words), np.int64, len(words))
        self._asked[found] = self._requests
        return found

    def _encode(self, words: list[str]) -> None:
        for start in range(0, len(words), ENCODED_TOGETHER):
            part = words[start : start + ENCODED_TOGETHER]
            vectors = self._encoder(self._encoder_input(part))
            first = len(self._slots)
            self._grow(first + len(part), vectors)
            self.table[first : first + len(part)] = vectors
            self._slots.update(zip(part, range(first, first + len(part)), strict=True))
        self.num_encoded += len(words)

    def _grow(self, size: int, like: Tensor) -> None:
        room = len(self.table)
        if size <= room:
            return
        grown = like.new_empty(max(size, min(2 * room, self.capacity)), like.shape[1])
        if room:
            grown[:room] = self.table
        self.table = grown
        self._asked = np.concatenate([self._asked, np.zeros(len(grown) - room, np.int64)])

    def _make_room(self, words: Sequence[str], num_new: int) -> None:
        """Drop the words not asked for the longest, but none of this request."""
        size = len(self._slots)
        if size + num_new <= self.capacity:
            return
        for word in words:
            if word in self._slots:
                self._asked[self._slots[word]] = self._requests
        keep = max(0, min(self.capacity // 2, self.capacity - num_new))
        by_age = np.argsort(-self._asked[:size], kind="stable")
        needed = int((self._asked[:size] == self._requests).sum())
        kept = np.sort(by_age[: max(keep, needed)])
        names = list(self._slots)  # in the order of their slots
        self.table[: len(kept)] = self.table[torch.from_numpy(kept)]
        self._asked[: len(kept)] = self._asked[kept]
        self._slots = {names[old]: slot for slot, old in enumerate(kept.tolist())}


def _fingerprint(encoder: nn.Module) -> tuple[tuple[int, int], ...]:
    """Changes when the encoder's weights do."""
    return tuple(
        (p.data_ptr(), 0 if p.is_inference() else p._version) for p in encoder.parameters()
    )
