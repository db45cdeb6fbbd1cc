"""A cache of the token encoder's outputs: each word is encoded once.

The token encoder reads only the characters of a word, so its output does not depend on the context.
At most `capacity` words are kept (or the words of one request, if there are more). When the table
is full, the least recently used half is dropped. It takes 4 x dim bytes per word, 51 MB for 100,000
words at dim 128 and 205 MB at 512, and grows as words are added.

The last bits of an output may depend on the words that are encoded in the same call, and therefore
on earlier requests. `pin` removes this dependence.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bilm.embedding.words import check_vocabulary, encoder_input
from bilm.model.devices import copy_to_device
from bilm.model.precision import Precision, precision_context
from bilm.pretrained.model_directory import PretrainedBiLm

MAX_WORDS_PER_CALL = 2048  # of the encoder; bounds its memory when many words are new


class EncodedWords:
    """The encoder's vectors by word; thread-safe.

    Args:
        pretrained: the model; its vocabulary is needed if it reads word ids.
        capacity: the number of words to keep.
        encoder: the encoder of the model, or a copy of it on another device. The table is on its
            device.
        precision: the precision of the encoder's matrix products.
        words_per_call: the number of words that the encoder computes in one call.
    """

    def __init__(
        self,
        pretrained: PretrainedBiLm,
        capacity: int,
        encoder: nn.Module | None = None,
        precision: Precision = "float32",
        words_per_call: int = MAX_WORDS_PER_CALL,
    ) -> None:
        check_vocabulary(pretrained.model.config, pretrained.vocabulary)
        self.capacity = capacity
        self.words_per_call = words_per_call
        self.num_encoded = 0  # words that the encoder has computed so far
        self._pretrained = pretrained
        self._encoder = pretrained.model.encoder if encoder is None else encoder
        self._precision: Precision = precision
        self._weights = _fingerprint(self._encoder)
        self._lock = threading.Lock()
        self._num_pinned: int | None = None  # the first rows; None if no words are pinned
        self._clear()

    def __len__(self) -> int:
        """Return the number of words in the table."""
        return len(self._slots)

    def __reduce__(self) -> tuple[type[EncodedWords], tuple[object, ...]]:
        """Copy or pickle without the table and the lock."""
        arguments = (self._pretrained, self.capacity, self._encoder, self._precision)
        return EncodedWords, (*arguments, self.words_per_call)

    @torch.inference_mode()
    def add(self, words: Iterable[str]) -> None:
        """Encode the new words among `words`; this is cheaper than a few words per lookup."""
        distinct = list(dict.fromkeys(words))
        with self._lock:
            if self._num_pinned is not None:
                for word in list(self._slots)[self._num_pinned :]:
                    del self._slots[word]
            self._slots_of(distinct)

    @torch.inference_mode()
    def pin(self, words: Iterable[str]) -> None:
        """Keep these words, up to half of the capacity, and drop all others at every `add`.

        Then what `add` computes depends on its own words and on the pinned ones, but not on earlier
        requests. The table has room for all words of one `add` besides the pinned ones.
        """
        distinct = list(dict.fromkeys(words))[: self.capacity // 2]
        with self._lock:
            self._clear()
            self._slots_of(distinct)
            self._num_pinned = len(distinct)

    @torch.inference_mode()
    def lookup(self, words: Sequence[str], rows: int, steps: int) -> Tensor:
        """Return the vectors of `words`, encoding those that are new.

        `words` is in the order (directions, rows, steps). The result is (directions, steps, rows,
        dim), because the LSTMs read time first.
        """
        with self._lock:  # also while gathering: another thread may move rows of the table
            slots = torch.from_numpy(self._slots_of(words)).view(-1, rows, steps).transpose(1, 2)
            return F.embedding(copy_to_device(slots, self._table.device), self._table)

    def _clear(self) -> None:
        self._slots: dict[str, int] = {}  # row of each word, in the order of the rows
        self._table: Tensor = torch.empty(0, 0)  # (rows, dim); the first len(self) are in use
        self._last_used: npt.NDArray[np.int64] = np.zeros(0, np.int64)  # request number by row
        self._num_requests = 0
        self._num_pinned = None

    def _slots_of(self, words: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return the row of each word in the table; the next request may move them."""
        weights = _fingerprint(self._encoder)
        if weights != self._weights:  # the encoder was trained or reloaded
            self._clear()
            self._weights = weights
        self._num_requests += 1
        try:
            slots = self._known_slots(words)
        except KeyError:
            new = [word for word in dict.fromkeys(words) if word not in self._slots]
            self._make_room(words, len(new))
            self._encode(new)
            slots = self._known_slots(words)
        self._last_used[slots] = self._num_requests
        return slots

    def _known_slots(self, words: Sequence[str]) -> npt.NDArray[np.int64]:
        return np.fromiter(map(self._slots.__getitem__, words), np.int64, len(words))

    def _encode(self, words: list[str]) -> None:
        for start in range(0, len(words), self.words_per_call):
            part = words[start : start + self.words_per_call]
            weight = next(self._encoder.parameters())
            config, vocabulary = self._pretrained.model.config, self._pretrained.vocabulary
            ids = encoder_input(part, config, vocabulary).long()
            inputs = copy_to_device(ids, weight.device)
            with precision_context(weight.device, self._precision):
                vectors = self._encoder(inputs).to(weight.dtype)
            first = len(self._slots)
            self._grow(first + len(part), vectors)
            self._table[first : first + len(part)] = vectors
            self._slots.update(zip(part, range(first, first + len(part)), strict=True))
        self.num_encoded += len(words)

    def _grow(self, size: int, like: Tensor) -> None:
        allocated = len(self._table)
        if size <= allocated:
            return
        grown = like.new_empty(max(size, min(2 * allocated, self.capacity)), like.shape[1])
        if allocated:
            grown[:allocated] = self._table
        self._table = grown
        unused = np.zeros(len(grown) - allocated, np.int64)
        self._last_used = np.concatenate([self._last_used, unused])

    def _make_room(self, words: Sequence[str], num_new: int) -> None:
        """Drop the least recently used words, but none of this request."""
        size = len(self._slots)
        if size + num_new <= self.capacity or self._num_pinned is not None:
            return
        for word in words:
            if word in self._slots:
                self._last_used[self._slots[word]] = self._num_requests
        keep = max(0, min(self.capacity // 2, self.capacity - num_new))
        by_age = np.argsort(-self._last_used[:size], kind="stable")
        needed = int((self._last_used[:size] == self._num_requests).sum())
        kept = np.sort(by_age[: max(keep, needed)])
        names = list(self._slots)
        self._table[: len(kept)] = self._table[
            copy_to_device(torch.from_numpy(kept), self._table.device)
        ]
        self._last_used[: len(kept)] = self._last_used[kept]
        self._slots = {names[old]: slot for slot, old in enumerate(kept.tolist())}


def _fingerprint(encoder: nn.Module) -> tuple[tuple[int, int], ...]:
    """Return a value that changes when the encoder's weights change."""
    return tuple(
        (p.data_ptr(), 0 if p.is_inference() else p._version) for p in encoder.parameters()
    )
