"""All text once through the tokeniser: word types counted, sentences spooled as provisional ids.

Types are numbered as they appear; the final order (falling count) is known only at the end, and
one table then turns provisional ids into final ones.

Cost: about 170 bytes a word type; nothing that grows with the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from bilm.characters import SPECIAL_WORDS
from bilm.errors import CorpusError
from data_tools.encode import EncodeOptions, Int32, Int64, encode_chunks
from data_tools.inputs import InputFile, read_chunks
from data_tools.progress import Progress
from data_tools.spool import Spool


class TypeCounter:
    """Word types by order of appearance, with their training counts."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._counts = np.zeros(1 << 16, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def types(self) -> list[str]:
        """The types, by provisional id."""
        return list(self._ids)

    @property
    def counts(self) -> Int64:
        """Their counts in the training text."""
        return self._counts[: len(self._ids)]

    def add(self, types: list[str], counts: Int64) -> Int32:
        """Add counts of types; their provisional ids come back."""
        ids = self._ids
        provisional = np.fromiter(
            (ids.setdefault(word, len(ids)) for word in types), np.int32, len(types)
        )
        if len(ids) > len(self._counts):
            grown = np.zeros(2 * len(ids), dtype=np.int64)
            grown[: len(self._counts)] = self._counts
            self._counts = grown
        self._counts[provisional] += counts
        return provisional


class FinalOrder:
    """The final order of all types: special words, vocabulary, and the rest by falling count."""

    def __init__(self, counter: TypeCounter, vocabulary: Sequence[str] | None) -> None:
        """With `vocabulary` (a brought one, special words first) its words come first."""
        types, counts = counter.types, counter.counts
        # Code points sort as their UTF-8 bytes do; the sort by count is stable.
        by_word = np.array(sorted(range(len(types)), key=types.__getitem__), dtype=np.int64)
        order = by_word[np.argsort(-counts[by_word], kind="stable")]
        head = SPECIAL_WORDS if vocabulary is None else vocabulary
        first = {word: i for i, word in enumerate(head)}
        rest = [i for i in order.tolist() if types[i] not in first]
        self.types = [*head, *(types[i] for i in rest)]
        self.counts = np.zeros(len(self.types), dtype=np.int64)
        self.final_ids = np.empty(len(types), dtype=np.int32)  # by provisional id
        self.final_ids[rest] = np.arange(len(head), len(self.types), dtype=np.int32)
        for i, word in enumerate(types):
            if word in first:
                self.final_ids[i] = first[word]
        self.counts[self.final_ids] = counts

    def vocabulary_size(self, max_vocab: int, min_count: int) -> int:
        """How many of the types, special words included, the softmax predicts."""
        special = len(SPECIAL_WORDS)
        frequent = int(np.count_nonzero(self.counts[special:] >= max(min_count, 1)))
        if not frequent:
            raise CorpusError(
                f"no word occurs {min_count} times in the training text, so the vocabulary would "
                "be empty; lower --min-count"
            )
        return min(special + frequent, max_vocab)


def count_text(
    files: Iterable[InputFile],
    options: EncodeOptions,
    num_workers: int,
    spools: dict[str, Spool] | None = None,
) -> tuple[TypeCounter, dict[int, int]]:
    """Encode and count all `files`; with `spools`, append their sentences to them by split.

    Also gives the peak memory of each worker, by process id.
    """
    files = list(files)
    counter = TypeCounter()
    peaks: dict[int, int] = {}
    chunks = read_chunks(files, options.field, options.errors)
    with Progress("read", sum(file.path.stat().st_size for file in files)) as progress:
        words = 0
        for encoded in encode_chunks(chunks, options, num_workers):
            provisional = counter.add(encoded.types, encoded.counts)
            for split, sentences in encoded.splits.items():
                words += len(sentences.ids)
                if spools is not None:
                    spools[split].append(sentences._replace(ids=provisional[sentences.ids]))
            peaks[encoded.worker] = encoded.peak_bytes
            progress.update(encoded.bytes_read, words)
    return counter, peaks
