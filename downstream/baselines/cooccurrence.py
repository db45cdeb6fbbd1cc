"""Word vectors from co-occurrence counts, reduced by a singular value decomposition.

Counts become positive pointwise mutual information with smoothed contexts (Levy et al., 2015);
the word vectors are the left singular vectors times the square root of the singular values. All
matrices are sparse: memory grows with the distinct pairs of the `max_words` most frequent words,
and the texts are counted in pieces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array  # type: ignore[import-untyped]
from sklearn.decomposition import TruncatedSVD

from downstream.baselines.mean_vectors import word_vectors
from downstream.features.word_vectors import WordVectors

_PIECE_WORDS = 500_000


def svd_vectors(
    texts: Sequence[Sequence[str]],
    *,
    dim: int,
    window: int,
    seed: int,
    max_words: int = 30_000,
) -> WordVectors:
    """Return vectors of at most `dim` dimensions for the most frequent words of `texts`."""
    counts = Counter(word for text in texts for word in text)
    words = [word for word, _ in counts.most_common(max_words)]
    pairs = cooccurrences(texts, words, window)
    # The randomized SVD has at most as many components as there are words, minus one.
    svd = TruncatedSVD(max(1, min(dim, len(words) - 1)), n_iter=3, random_state=seed)
    left = svd.fit_transform(positive_information(pairs))  # U * S
    scale = np.sqrt(np.maximum(svd.singular_values_, 1e-12))
    return word_vectors(words, np.asarray(left / scale, dtype=np.float32))


def cooccurrences(texts: Sequence[Sequence[str]], words: Sequence[str], window: int) -> csr_array:
    """Count how often two of `words` occur within `window` words of each other in a text.

    Pairs are counted in both orders: the result (words, words) is symmetric.
    """
    ids = {word: i for i, word in enumerate(words)}
    total = csr_array((len(words), len(words)), dtype=np.float32)
    piece: list[int] = []
    for text in texts:
        # A word that is not counted keeps its position; a gap of `window` separates the texts.
        piece.extend(ids.get(word, -1) for word in text)
        piece.extend([-1] * window)
        if len(piece) >= _PIECE_WORDS:
            total = total + _count(np.array(piece), len(words), window)
            piece = []
    if piece:
        total = total + _count(np.array(piece), len(words), window)
    return total


def _count(ids: npt.NDArray[np.int64], num_words: int, window: int) -> csr_array:
    """Count the pairs of one piece in both orders; -1 marks a position without a counted word."""
    total = csr_array((num_words, num_words), dtype=np.float32)
    for distance in range(1, min(window, len(ids) - 1) + 1):
        first, second = ids[:-distance], ids[distance:]
        both = (first >= 0) & (second >= 0)
        ones = np.ones(int(both.sum()), dtype=np.float32)
        forward = coo_array((ones, (first[both], second[both])), (num_words, num_words)).tocsr()
        total = total + forward + forward.T.tocsr()
    return total


def positive_information(pairs: csr_array, smoothing: float = 0.75) -> csr_array:
    """Return max(0, log(p(word, context) / (p(word) p(context)))).

    Context counts are smoothed by raising them to the power `smoothing`.
    """
    pairs = pairs.tocoo()
    word_sums = np.asarray(pairs.sum(axis=1)).ravel()
    contexts = np.asarray(pairs.sum(axis=0)).ravel() ** smoothing
    row, column = pairs.coords
    with np.errstate(divide="ignore"):
        information = (
            np.log(pairs.data)
            - np.log(word_sums)[row]
            - np.log(contexts / max(contexts.sum(), 1e-12))[column]
        )
    kept = information > 0
    values = information[kept].astype(np.float32)
    return coo_array((values, (row[kept], column[kept])), pairs.shape).tocsr()
