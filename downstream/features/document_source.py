"""Batches of documents for coreference: the sentences of windows, and the mentions in them.

A window is a range of sentences of a document. A batch has the sentences of all its windows as
texts, one after another; its extras state which sentences belong to which window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from downstream.features.batches import Batch, Ids
from downstream.features.word_ranges import WordRanges
from downstream.texts.clusters import Clusters, clusters_within, joined_clusters

UNKNOWN_GENRE = 0


@dataclass(frozen=True)
class Window:
    """Consecutive sentences of a document.

    `document` is the index of the document in its split, `sentences` the range of its sentences
    among the texts of the file, and `words` the range of its words in the document.
    """

    document: int
    sentences: range
    words: range


@dataclass(frozen=True)
class DocumentInputs:
    """The windows, and the genre and the speakers (one per word) of each document, as numbers.

    Speakers are compared only with speakers of the same document; None if there are none.
    """

    windows: Sequence[Window]
    genres: Ids  # (documents,)
    speakers: Sequence[Ids] | None = None


def cut_sentences(lengths: Sequence[int], max_words: int, overlap: bool) -> list[range]:
    """Return ranges of sentences of at most `max_words` words, which cover all sentences.

    A longer sentence is a range of its own. With `overlap`, a range begins with sentences of up to
    half of `max_words` from the end of the range before it.
    """
    ranges, start = [], 0
    while True:
        end, num_words = start + 1, lengths[start]
        while end < len(lengths) and num_words + lengths[end] <= max_words:
            num_words += lengths[end]
            end += 1
        ranges.append(range(start, end))
        if end == len(lengths):
            return ranges
        following, shared = end, 0
        largest = min(max_words // 2, max_words - lengths[end])  # the next sentence must fit
        while overlap and following - 1 > start:
            shared += lengths[following - 1]
            if shared > largest:
                break
            following -= 1
        start = following


def windows_of(
    lengths: Sequence[Sequence[int]], first_texts: Sequence[int], max_words: int, overlap: bool
) -> list[Window]:
    """Return the windows of documents, given the lengths of their sentences.

    `first_texts` has the place of the first sentence of each document among the texts of its file.
    """
    windows = []
    for document, (sizes, first) in enumerate(zip(lengths, first_texts, strict=True)):
        ends = np.cumsum([0, *sizes]).tolist()
        for part in cut_sentences(sizes, max_words, overlap):
            sentences = range(first + part.start, first + part.stop)
            windows.append(Window(document, sentences, range(ends[part.start], ends[part.stop])))
    return windows


def genre_ids(genres: Sequence[str | None], known: Sequence[str]) -> Ids:
    """Return the number of each genre, from 1, or that of the unknown genre."""
    ids = {genre: i for i, genre in enumerate(known, UNKNOWN_GENRE + 1)}
    numbers = [UNKNOWN_GENRE if g is None else ids.get(g, UNKNOWN_GENRE) for g in genres]
    return np.array(numbers, dtype=np.int64)


def speaker_ids(speakers: Sequence[str] | None, num_words: int) -> Ids:
    """Return a number per word; a document without speakers has a single one."""
    if speakers is None:
        return np.zeros(num_words, dtype=np.int64)
    ids: dict[str, int] = {}
    return np.array([ids.setdefault(name, len(ids)) for name in speakers], dtype=np.int64)


class DocumentSource:
    """The windows of documents, whose sentences are texts of a file."""

    def __init__(self, words: WordRanges, inputs: DocumentInputs) -> None:
        self._words = words
        self._inputs = inputs

    def __len__(self) -> int:
        return len(self._inputs.windows)

    @property
    def lengths(self) -> Ids:
        return np.array([len(window.words) for window in self._inputs.windows])

    def batch(self, indices: Ids) -> Batch:
        windows = [self._inputs.windows[i] for i in indices]
        file = self._words.file
        batch = self._words.batch([file.words_of(i) for w in windows for i in w.sentences])
        documents = [window.document for window in windows]
        extras = {
            **batch.extras,
            "num_sentences": torch.tensor([len(window.sentences) for window in windows]),
            "first_words": torch.tensor([window.words.start for window in windows]),
            "genres": torch.from_numpy(self._inputs.genres[documents]),
        }
        if self._inputs.speakers is not None:
            parts = [
                self._inputs.speakers[w.document][w.words.start : w.words.stop] for w in windows
            ]
            extras["speakers"] = torch.from_numpy(np.concatenate(parts))
        return replace(batch, extras=extras)


@dataclass(frozen=True)
class ClusterTargets:
    """The true clusters of each document, and the windows that are the examples."""

    documents: Sequence[Clusters]
    windows: Sequence[Window]

    def __len__(self) -> int:
        return len(self.windows)

    def batch(self, indices: Ids) -> Tensor:
        """Return a row per mention: window of the batch, first word, last word, cluster.

        Words are counted from the first word of the window.
        """
        rows = []
        for i, index in enumerate(indices):
            window = self.windows[index]
            words = window.words
            inside = clusters_within(self.documents[window.document], words.start, words.stop - 1)
            rows += [(i, *mention, k) for k, cluster in enumerate(inside) for mention in cluster]
        return torch.tensor(rows, dtype=torch.int64).reshape(-1, 4)

    def join(self, predicted: Sequence[Clusters]) -> list[Clusters]:
        """Return the clusters of each document, given those of its windows."""
        parts: list[list[Clusters]] = [[] for _ in self.documents]
        for window, clusters in zip(self.windows, predicted, strict=True):
            parts[window.document].append(clusters)
        return [joined_clusters(part) for part in parts]
