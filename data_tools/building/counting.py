"""Tokenize all text once: count the word types, and spool the sentences as provisional ids.

Types are numbered in the order of their first occurrence. The final order (decreasing count) is
known only at the end; a table then maps provisional ids to final ids.

Cost: about 170 bytes per word type; memory does not grow with the text.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bilm.errors import CorpusError
from bilm.text.characters import SPECIAL_WORDS
from bilm.text.vocabulary import Vocabulary
from data_tools.building.encode import EncodeOptions, Int64, encode_chunks
from data_tools.building.spool import Int32, Spool
from data_tools.reading.progress import Progress

# The order of a given vocabulary is checked only if this many of its words occur in the text.
MIN_WORDS_TO_JUDGE_ORDER = 100

MIN_RANK_CORRELATION = 0.2

# If more sentences than this share are longer than this, the lines are probably documents.
LONG_SENTENCE_WORDS = 100

MAX_LONG_SHARE = 0.1

logger = logging.getLogger(__name__)


class TypeCounter:
    """Word types in the order of their first occurrence, with their training counts."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._counts = np.zeros(1 << 16, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def types(self) -> list[str]:
        """The types by provisional id."""
        return list(self._ids)

    @property
    def counts(self) -> Int64:
        """The counts of the types in the training text."""
        return self._counts[: len(self._ids)]

    def add(self, types: list[str], counts: Int64) -> Int32:
        """Add counts of types, and return the provisional ids of the types."""
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
    """The final order of all types: special words, vocabulary, the rest by decreasing count."""

    def __init__(self, counter: TypeCounter, vocabulary: Sequence[str] | None) -> None:
        """Sort the types; a `vocabulary`, which begins with the special words, keeps its ids."""
        types, counts = counter.types, counter.counts
        # Sorting by code point equals sorting by UTF-8 bytes, and the sort by count is stable.
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
        """Return the size of the softmax vocabulary, including the special words."""
        special = len(SPECIAL_WORDS)
        frequent = int(np.count_nonzero(self.counts[special:] >= max(min_count, 1)))
        if not frequent:
            raise CorpusError(
                f"no word occurs at least {min_count} times in the training text, so the "
                "vocabulary would be empty; decrease --min-count"
            )
        return min(special + frequent, max_vocab)


def count_text(
    options: EncodeOptions, spools: dict[str, Spool] | None = None
) -> tuple[TypeCounter, dict[int, int]]:
    """Encode and count the input; append the sentences of each split to its spool, if given.

    Returns the counts, and the peak memory of each worker in bytes by process id.
    """
    text = options.text
    counter = TypeCounter()
    peaks: dict[int, int] = {}
    with Progress("read", sum(file.path.stat().st_size for file in text.inputs)) as progress:
        words = num_sentences = num_long = 0
        for encoded in encode_chunks(text.chunks(text.inputs), options):
            provisional = counter.add(encoded.types, encoded.counts)
            for split, sentences in encoded.splits.items():
                words += len(sentences.ids)
                num_sentences += len(sentences.lengths)
                num_long += int(np.count_nonzero(sentences.lengths > LONG_SENTENCE_WORDS))
                if spools is not None:
                    spools[split].append(sentences._replace(ids=provisional[sentences.ids]))
            peaks[encoded.worker] = encoded.peak_bytes
            progress.update(encoded.bytes_read, words)
    if text.lines == "sentences" and num_long > MAX_LONG_SHARE * num_sentences:
        logger.warning(
            "warning: %.0f%% of the lines have more than %d words. If each line is a document, use "
            "--lines documents, which splits it into sentences",
            100 * num_long / num_sentences,
            LONG_SENTENCE_WORDS,
        )
    return counter, peaks


def check_order(vocabulary: Vocabulary, counter: TypeCounter, source: str) -> None:
    """Reject a given vocabulary whose order does not follow the counts in the text."""
    counts_by_word = dict(zip(counter.types, counter.counts.tolist(), strict=True))
    words = vocabulary.words[len(SPECIAL_WORDS) :]
    counts = np.array([counts_by_word.get(word, 0) for word in words], dtype=np.int64)
    counts = counts[counts > 0]
    if len(counts) < MIN_WORDS_TO_JUDGE_ORDER:
        return
    correlation = rank_correlation(-np.arange(len(counts)), counts)
    if correlation < MIN_RANK_CORRELATION:
        raise CorpusError(
            f"the vocabulary {source} is not sorted by decreasing count: for its {len(counts):,} "
            "words that occur in the text, the rank correlation between position and count is "
            f"{correlation:.2f}; it must be at least {MIN_RANK_CORRELATION}. Negative samples are "
            "drawn by position, so the order matters. Sort it, or use --allow-unsorted-vocab"
        )


def rank_correlation(a: Int64, b: Int64) -> float:
    """Return Spearman's coefficient, with mean ranks for ties; 1 if an input is constant."""
    first, second = _mean_ranks(a), _mean_ranks(b)
    if not first.std() or not second.std():
        return 1.0
    return float(np.corrcoef(first, second)[0, 1])


def _mean_ranks(values: Int64) -> npt.NDArray[np.float64]:
    _, inverse, sizes = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(sizes)
    ranks: npt.NDArray[np.float64] = (ends - (sizes - 1) / 2)[inverse]
    return ranks
