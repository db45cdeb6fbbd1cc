"""The nearest occurrences of a word in context, and a map of its occurrences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from downstream.analyses.occurrences import CONTEXT_WORDS, Occurrence, principal_plane
from downstream.explorer.index import Floats, Ids, OccurrenceIndex
from downstream.explorer.index_format import VECTOR_DTYPE
from downstream.explorer.schemas import (
    LayerNeighbours,
    MapPoint,
    NeighbourEntry,
    OccurrenceMap,
)
from downstream.explorer.service import Layers, mixed
from downstream.reports.pages import layer_name

MAX_MAP_POINTS = 1000

_MAX_ROUNDING = 2e-3  # of float16, relative to the largest value

QUERY_ROW = -1  # the row of the query on the map


@dataclass(frozen=True)
class Query:
    """A word of a sentence, its layers (layers, words, dim), and what to find.

    `weights` has one entry per output: the weight of each layer. `scope` is "word" or "all".
    """

    words: Sequence[str]
    position: int
    layers: Layers
    weights: Sequence[Sequence[float]]
    count: int
    scope: str
    with_map: bool

    @property
    def word(self) -> str:
        """The word."""
        return self.words[self.position]

    def vector(self, weights: Sequence[float]) -> Floats:
        """Return the mixed vector of the word, rounded as in the index."""
        layers = self.layers[:, self.position : self.position + 1]
        vector: Floats = mixed(layers.astype(VECTOR_DTYPE).astype(np.float32), weights)[0]
        return vector


def find_neighbours(index: OccurrenceIndex, query: Query) -> tuple[int, list[LayerNeighbours]]:
    """Return the number of occurrences of the word, and the neighbours in each output."""
    rows = index.rows_of(query.word)
    return len(rows), [_in_layer(index, query, rows, weights) for weights in query.weights]


def _in_layer(
    index: OccurrenceIndex, query: Query, rows: Ids, weights: Sequence[float]
) -> LayerNeighbours:
    vector = query.vector(weights)
    among = rows if query.scope == "word" else None
    # The sentence of the query may be in the index, once; it is left out.
    found = index.nearest(vector, weights, query.count + len(query.words), among)
    entries = []
    for match in found:
        occurrence = index.occurrence(match.row)
        if list(occurrence.words) != list(query.words):
            words, place = shortened(occurrence)
            cosine = round(match.cosine, 6)
            entry = NeighbourEntry(row=match.row, cosine=cosine, words=words, place=place)
            entries.append(entry)
    return LayerNeighbours(
        layer=output_name(weights),
        neighbours=entries[: query.count],
        map=_map(index, query, rows, weights) if query.with_map else None,
    )


def _map(
    index: OccurrenceIndex, query: Query, rows: Ids, weights: Sequence[float]
) -> OccurrenceMap:
    """Return the occurrences of the word, at most `MAX_MAP_POINTS` at even distances."""
    if len(rows) > MAX_MAP_POINTS:
        rows = rows[np.linspace(0, len(rows) - 1, MAX_MAP_POINTS).astype(np.int64)]
    vectors = np.concatenate([index.vectors(rows, weights), query.vector(weights)[None]])
    points, variance = principal_plane(vectors, _MAX_ROUNDING * float(np.abs(vectors).max()))
    own = Occurrence(tuple(query.words), query.position)
    occurrences = [*((int(row), index.occurrence(int(row))) for row in rows), (QUERY_ROW, own)]
    entries = []
    for (row, occurrence), (x, y) in zip(occurrences, points.tolist(), strict=True):
        words, place = shortened(occurrence)
        entries.append(MapPoint(row=row, x=round(x, 5), y=round(y, 5), words=words, place=place))
    return OccurrenceMap(points=entries, variance=round(variance, 5))


def shortened(occurrence: Occurrence) -> tuple[list[str], int]:
    """Return the words around an occurrence, with an ellipsis where words are left out."""
    start = max(0, occurrence.place - CONTEXT_WORDS)
    end = occurrence.place + CONTEXT_WORDS + 1
    words = list(occurrence.words[start:end])
    place = occurrence.place - start
    if start:
        words, place = ["…", *words], place + 1
    return ([*words, "…"] if end < len(occurrence.words) else words), place


def output_name(weights: Sequence[float]) -> str:
    """Return the name of a layer or mix."""
    used = [i for i, weight in enumerate(weights) if weight != 0]
    if len(used) == 1 and weights[used[0]] == 1:
        return layer_name(used[0])
    return "mix " + ", ".join(f"{weight:.2f}" for weight in weights)
