"""Sort the word types by count, and choose the vocabulary.

This is the only step of a build that one process does alone, so it has no loop over types except in
NumPy and list comprehensions.

Cost: about 150 bytes and half a microsecond per word type; both do not grow with the text.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bilm.errors import CorpusError
from bilm.text.characters import SPECIAL_WORDS
from data_tools.building.encode import LONG_SENTENCE_WORDS, PartSize
from data_tools.building.spool import Int32
from data_tools.building.word_types import Int64
from data_tools.reading.options import GivenVocabulary, VocabularyOptions

# The order of a given vocabulary is checked only if this many of its words occur in the text.
MIN_WORDS_TO_JUDGE_ORDER = 100

MIN_RANK_CORRELATION = 0.2

# If more sentences than this share are long, the lines are probably documents.
MAX_LONG_SHARE = 0.1

logger = logging.getLogger(__name__)


class FinalOrder:
    """The final order of all types: special words, vocabulary, the rest by decreasing count."""

    def __init__(self, types: Sequence[bytes], counts: Int64, head: Int32) -> None:
        """Sort `types`, which are in the order of their bytes; those at `head` are the first."""
        is_rest = np.ones(len(types), dtype=np.bool_)
        is_rest[head] = False
        rest = np.flatnonzero(is_rest)
        rest = rest[np.argsort(-counts[rest], kind="stable")]
        order = np.concatenate([head, rest])
        self.types = [types[i] for i in order.tolist()]
        self.counts = counts[order]
        self.final_ids = np.empty(len(types), dtype=np.int32)  # in the order of the bytes
        self.final_ids[order] = np.arange(len(types), dtype=np.int32)

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


def warn_about_documents(sizes: Sequence[PartSize]) -> None:
    """Print a warning if many sentences are as long as documents."""
    num_sentences = sum(sum(size.sentences.values()) for size in sizes)
    num_long = sum(size.long_sentences for size in sizes)
    if num_long > MAX_LONG_SHARE * num_sentences:
        logger.warning(
            "warning: %.0f%% of the lines have more than %d words. If each line is a document, use "
            "--lines documents, which splits it into sentences",
            100 * num_long / num_sentences,
            LONG_SENTENCE_WORDS,
        )


def check_order(order: FinalOrder, vocabulary_size: int, source: str) -> None:
    """Reject a given vocabulary whose order does not follow the counts in the text."""
    counts = order.counts[len(SPECIAL_WORDS) : vocabulary_size]
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


def choose_size(
    order: FinalOrder, options: VocabularyOptions | GivenVocabulary, num_given: int
) -> int:
    """Return the size of the vocabulary, of which the first `num_given` words are given."""
    if isinstance(options, VocabularyOptions):
        return order.vocabulary_size(options.max_words, options.min_count)
    if not options.allow_unsorted:
        check_order(order, num_given, str(options.file))
    return num_given
