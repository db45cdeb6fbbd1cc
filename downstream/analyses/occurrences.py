"""Occurrences of a word in sentences, their vectors, and their nearest neighbours.

Memory: 4 x occurrences x layers x dim bytes for the vectors; with labels, also about 24 bytes per
pair of occurrences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bilm.text.lines import LineReader
from downstream.analyses.nearest import LayerRows, nearest_rows, norms_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from bilm.embedding.embedder import Embedder
    from bilm.text.tokenizers import Tokenizer

    Floats = npt.NDArray[np.float32]

NEIGHBOURS_COMPARED = 10  # by label

CONTEXT_WORDS = 9  # shown on each side of the word


@dataclass(frozen=True)
class Occurrence:
    """A word of a tokenized sentence, and the label of the sentence if there is one."""

    words: tuple[str, ...]
    place: int
    label: str | None = None

    def marked(self) -> str:
        """Return the word in brackets with the words around it."""
        start, end = max(0, self.place - CONTEXT_WORDS), self.place + CONTEXT_WORDS + 1
        before, after = self.words[start : self.place], self.words[self.place + 1 : end]
        parts = [*before, f"[{self.words[self.place]}]", *after]
        return ("… " if start else "") + " ".join(parts) + (" …" if end < len(self.words) else "")


@dataclass(frozen=True)
class Neighbour:
    """An occurrence near a query."""

    sentence: str
    cosine: float
    label: str | None


@dataclass(frozen=True)
class QueryNeighbours:
    """A query and its nearest occurrences, nearest first."""

    query: str
    label: str | None
    nearest: Sequence[Neighbour]


def find_occurrences(
    sentences: Iterable[tuple[str, str | None]], word: str, tokenizer: Tokenizer, limit: int
) -> list[Occurrence]:
    """Return the first occurrence of `word`, ignoring case, in each distinct sentence.

    `sentences` are pairs of text and label. At most `limit` occurrences are returned.
    """
    occurrences: list[Occurrence] = []
    seen: set[tuple[str, ...]] = set()
    wanted = word.lower()
    for text, label in sentences:
        if wanted not in text.lower():
            continue
        words = tuple(tokenizer.tokenize(text))
        # SentencePiece marks a piece that begins a word with a leading ▁.
        places = [i for i, other in enumerate(words) if other.lower().lstrip("▁") == wanted]
        if places and words not in seen:
            seen.add(words)
            occurrences.append(Occurrence(words, places[0], label))
            if len(occurrences) == limit:
                break
    return occurrences


def occurrence_vectors(embedder: Embedder, occurrences: Sequence[Occurrence]) -> Floats:
    """Return the vector of the word in each sentence (layers, occurrences, dim)."""
    import numpy as np

    arrays = embedder.stream([occurrence.words for occurrence in occurrences])
    rows = [
        layers[:, occurrence.place].copy()  # a view would keep all words in memory
        for occurrence, layers in zip(occurrences, arrays, strict=True)
    ]
    return np.stack(rows, axis=1)


def cosines(first: Floats, second: Floats) -> Floats:
    """Return the cosine of each pair of rows (rows, rows); 0 where a vector is zero."""
    import numpy as np

    def unit(rows: Floats) -> Floats:
        scaled: Floats = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        return scaled

    result: Floats = unit(first) @ unit(second).T
    return result


def nearest_neighbours(
    queries: Sequence[Occurrence],
    query_vectors: Floats,
    occurrences: Sequence[Occurrence],
    vectors: Floats,
    count: int,
) -> list[QueryNeighbours]:
    """Return the `count` nearest occurrences of each query in other sentences, in one layer."""
    rows = LayerRows([vectors], [1.0], norms_of(vectors))
    result = []
    for query, vector in zip(queries, query_vectors, strict=True):
        num_equal = sum(occurrence.words == query.words for occurrence in occurrences)
        nearest = [
            Neighbour(occurrence.marked(), match.cosine, occurrence.label)
            for match in nearest_rows(rows, vector, count + num_equal)
            if (occurrence := occurrences[match.row]).words != query.words
        ]
        result.append(QueryNeighbours(query.marked(), query.label, nearest[:count]))
    return result


def label_purities(occurrences: Sequence[Occurrence], vectors: Floats) -> list[float] | None:
    """Return, by layer, the mean share of nearest neighbours with the label of the occurrence.

    Counts the 10 nearest neighbours. Returns None if an occurrence has no label.
    """
    import numpy as np

    if any(occurrence.label is None for occurrence in occurrences):
        return None
    labels = np.array([occurrence.label for occurrence in occurrences])
    count = min(NEIGHBOURS_COMPARED, len(occurrences) - 1)
    rng = np.random.default_rng(0)
    result = []
    for layer in vectors:
        similar = cosines(layer, layer)
        np.fill_diagonal(similar, -np.inf)
        # Ties, such as equal spellings in layer 0, are broken at random.
        ties = rng.random(similar.shape)
        nearest = np.lexsort((ties, -similar.round(5)), axis=1)[:, :count]
        result.append(float((labels[nearest] == labels[:, None]).mean()))
    return result


def principal_plane(vectors: Floats, tolerance: float = 1e-5) -> tuple[Floats, float]:
    """Return the vectors on their first two principal components (rows, 2).

    Also returns the share of the variance that the components explain; 0 if all vectors are equal
    within the tolerance.
    The sign of a component is such that its largest weight is positive.
    """
    import numpy as np

    points = np.zeros((len(vectors), 2), dtype=np.float32)
    if np.ptp(vectors, axis=0).max() <= tolerance:
        return points, 0.0
    centered = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    _, sizes, components = np.linalg.svd(centered, full_matrices=False)
    for i, component in enumerate(components[:2]):
        sign = np.sign(component[np.abs(component).argmax()])
        points[:, i] = centered @ (sign * component)
    return points, float((sizes[:2] ** 2).sum() / (sizes**2).sum())


def read_lines(path: Path) -> Iterator[tuple[str, None]]:
    """Yield the lines of a text file, plain or compressed, as unlabelled sentences."""
    for line in LineReader(path).lines():
        yield line, None
