"""The scores of coreference: MUC, B-cubed, CEAF and mentions, and their mean, the CoNLL score.

The definitions are those of the reference scorer (Pradhan et al., 2014). Precision and recall are
ratios of sums over all documents. Both sides must follow the same convention about singletons,
clusters of one mention: they have no effect on MUC, but raise B-cubed and CEAF.

Cost: for CEAF, an optimal assignment of the clusters of each document.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from downstream.texts.clusters import Cluster, Clusters, Mention, mentions_of, without_singletons


@dataclass(frozen=True)
class Prf:
    """Precision, recall and F1; a division by zero counts as 0."""

    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class ClusterScores:
    """The scores of the clusters of some documents; `conll` is the mean F1 of the first three."""

    conll: float
    muc: Prf
    b_cubed: Prf
    ceaf_e: Prf  # entities, by the similarity phi4
    ceaf_m: Prf  # mentions, by the similarity phi3
    mentions: Prf


class _Ratio(NamedTuple):
    """The numerator and the denominator of a precision or a recall."""

    part: float
    whole: float


_Similarity = Callable[[Cluster, Cluster, int], float]

_Ratios = tuple[_Ratio, _Ratio]  # of the precision and of the recall of one document


def score_clusters(truth: Sequence[Clusters], predicted: Sequence[Clusters]) -> ClusterScores:
    """Compare the predicted clusters of each document with the true ones."""
    if len(truth) != len(predicted) or not truth:
        raise ValueError(
            f"there are {len(truth)} documents with true clusters and {len(predicted)} with "
            "predicted ones; their numbers must be equal and above 0"
        )
    muc, b_cubed, ceaf_e, ceaf_m, mentions = (
        _sum([measure(gold, found) for gold, found in zip(truth, predicted, strict=True)])
        for measure in (_muc, _b_cubed, _ceaf_e, _ceaf_m, _mentions)
    )
    conll = (muc.f1 + b_cubed.f1 + ceaf_e.f1) / 3
    return ClusterScores(conll, muc, b_cubed, ceaf_e, ceaf_m, mentions)


def score_chains(truth: Sequence[Clusters], predicted: Sequence[Clusters]) -> ClusterScores:
    """Compare the clusters of more than one mention; singletons are removed from both sides."""
    return score_clusters(
        [without_singletons(clusters) for clusters in truth],
        [without_singletons(clusters) for clusters in predicted],
    )


def _sum(documents: Iterable[_Ratios]) -> Prf:
    """Return the ratios of the sums over documents."""
    sums = np.sum([[tuple(ratio) for ratio in ratios] for ratios in documents], axis=0)
    (correct, found), (covered, true) = sums.tolist()
    precision = correct / found if found else 0.0
    recall = covered / true if true else 0.0
    both = precision + recall
    return Prf(precision, recall, 2 * precision * recall / both if both else 0.0)


def _muc(truth: Clusters, predicted: Clusters) -> _Ratios:
    """Count the links that remain if each cluster is divided by the clusters of the other side."""
    return _links(predicted, truth), _links(truth, predicted)


def _links(clusters: Clusters, others: Clusters) -> _Ratio:
    owner = _owners(others)
    part = whole = 0
    for cluster in clusters:
        # A mention that the other side does not have is a part of its own.
        num_parts = len({owner[m] for m in cluster if m in owner})
        num_parts += sum(m not in owner for m in cluster)
        part += len(cluster) - num_parts
        whole += len(cluster) - 1
    return _Ratio(part, whole)


def _b_cubed(truth: Clusters, predicted: Clusters) -> _Ratios:
    """Average over mentions the share of their cluster that the other side also has."""
    return _shares(predicted, truth), _shares(truth, predicted)


def _shares(clusters: Clusters, others: Clusters) -> _Ratio:
    owner = _owners(others)
    part = 0.0
    for cluster in clusters:
        sizes = Counter(owner[m] for m in cluster if m in owner)
        part += sum(size * size for size in sizes.values()) / len(cluster)
    return _Ratio(part, sum(map(len, clusters)))


def _owners(clusters: Clusters) -> dict[Mention, int]:
    return {mention: i for i, cluster in enumerate(clusters) for mention in cluster}


def _ceaf_e(truth: Clusters, predicted: Clusters) -> _Ratios:
    """Align the clusters one to one; the similarity of two is the F1 of their mentions (phi4)."""
    similarity = _aligned(truth, predicted, lambda a, b, common: 2 * common / (len(a) + len(b)))
    return _Ratio(similarity, len(predicted)), _Ratio(similarity, len(truth))


def _ceaf_m(truth: Clusters, predicted: Clusters) -> _Ratios:
    """Align the clusters one to one; the similarity is the number of common mentions (phi3)."""
    similarity = _aligned(truth, predicted, lambda a, b, common: common)
    return _Ratio(similarity, sum(map(len, predicted))), _Ratio(similarity, sum(map(len, truth)))


def aligned_clusters(truth: Clusters, predicted: Clusters) -> dict[int, int]:
    """Return the true cluster of each predicted one, by their indices, for clusters that have one.

    The alignment is one to one and has as many common mentions as possible.
    """
    table, rows, columns = _alignment(truth, predicted, lambda a, b, common: common)
    pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    return {column: row for row, column in pairs if table[row, column] > 0}


def _aligned(truth: Clusters, predicted: Clusters, similarity: _Similarity) -> float:
    """Return the largest sum of similarities of an alignment of the clusters."""
    table, rows, columns = _alignment(truth, predicted, similarity)
    return float(table[rows, columns].sum())


def _alignment(
    truth: Clusters, predicted: Clusters, similarity: _Similarity
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the similarities of all clusters, and the rows and columns of the best alignment."""
    from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

    table = np.zeros((len(truth), len(predicted)))
    owner = _owners(predicted)
    for i, cluster in enumerate(truth):
        for j, common in Counter(owner[m] for m in cluster if m in owner).items():
            table[i, j] = similarity(cluster, predicted[j], common)
    rows, columns = linear_sum_assignment(table, maximize=True)
    return table, rows, columns


def _mentions(truth: Clusters, predicted: Clusters) -> _Ratios:
    gold, found = mentions_of(truth), mentions_of(predicted)
    common = len(gold & found)
    return _Ratio(common, len(found)), _Ratio(common, len(gold))
