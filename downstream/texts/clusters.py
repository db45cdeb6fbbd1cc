"""Clusters of mentions: sets of word ranges of a document that refer to the same entity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple


class Mention(NamedTuple):
    """A range of words of a document; both words belong to it, as in coreference files."""

    first: int
    last: int


Cluster = tuple[Mention, ...]
Clusters = tuple[Cluster, ...]


def sorted_clusters(clusters: Iterable[Iterable[Mention]]) -> Clusters:
    """Return clusters in the order of their first mentions, each in the order of the text."""
    return tuple(sorted(tuple(sorted(cluster)) for cluster in clusters))


def without_singletons(clusters: Clusters) -> Clusters:
    """Return the clusters of more than one mention."""
    return tuple(cluster for cluster in clusters if len(cluster) > 1)


def mentions_of(clusters: Clusters) -> set[Mention]:
    """Return the mentions of all clusters."""
    return {mention for cluster in clusters for mention in cluster}


def clusters_within(clusters: Clusters, first: int, last: int) -> Clusters:
    """Return the parts of the clusters within a range of words, counted from its first word."""
    parts = (
        tuple(Mention(a - first, b - first) for a, b in cluster if first <= a and b <= last)
        for cluster in clusters
    )
    return tuple(part for part in parts if part)


def joined_clusters(parts: Sequence[Clusters]) -> Clusters:
    """Join the clusters of overlapping windows: clusters that share a mention become one."""
    if len(parts) == 1:
        return parts[0]
    clusters: dict[Mention, set[Mention]] = {}
    for cluster in (cluster for part in parts for cluster in part):
        joined = set(cluster)
        for mention in cluster:
            joined |= clusters.get(mention, set())
        for mention in joined:
            clusters[mention] = joined
    distinct = {id(cluster): cluster for cluster in clusters.values()}
    return sorted_clusters(distinct.values())


def linked_clusters(
    mentions: Sequence[Mention],
    antecedents: Sequence[int],
    is_singleton: Callable[[int], bool],
) -> Clusters:
    """Return the clusters of mentions that are linked to earlier ones.

    `antecedents` has the index of an earlier mention, or -1. A mention that is not linked to any
    other is a cluster if `is_singleton` is true for its index.
    """
    clusters: list[list[int]] = []
    cluster_of: dict[int, int] = {}
    for i, antecedent in enumerate(antecedents):
        if antecedent < 0:
            cluster_of[i] = len(clusters)
            clusters.append([i])
        else:
            cluster_of[i] = cluster_of[antecedent]
            clusters[cluster_of[i]].append(i)
    return sorted_clusters(
        (mentions[i] for i in cluster)
        for cluster in clusters
        if len(cluster) > 1 or is_singleton(cluster[0])
    )
