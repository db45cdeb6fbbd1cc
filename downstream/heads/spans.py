"""Spans of a document: their vectors, their scores as mentions, and the choice of the best ones.

The vector of a span is a hidden layer on its first word, its last word, the mean of its words
weighted by attention (its head), and its width. The layer is linear in each of them, so the words
are projected once, and the projections are added for each span: with spans of up to w words, this
is about w times faster than a layer on the concatenated vectors, and equal to it.

Cost: words x max_width x hidden_dim additions, and as many numbers in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from downstream.heads.layers import small_embedding

_MAX_LOGIT = 10.0


class SpanGrid(NamedTuple):
    """All spans of a document, by first word and by width.

    `vectors` are (words, widths, dim); `scores` and `mask` (words, widths). The span at (i, k)
    consists of the words i to i + k; the mask marks spans that do not leave their sentence.
    """

    vectors: Tensor
    scores: Tensor
    mask: Tensor


class SpanScorer(nn.Module):
    """The vectors of all spans, and the score of each span as a mention."""

    def __init__(self, context_dim: int, input_dim: int, hidden_dim: int, max_width: int) -> None:
        super().__init__()
        self.max_width = max_width
        self.first = nn.Linear(context_dim, hidden_dim)
        self.last = nn.Linear(context_dim, hidden_dim, bias=False)
        self.head = nn.Linear(input_dim, hidden_dim, bias=False)
        self.attend = nn.Linear(context_dim, 1)
        self.widths = small_embedding(max_width, hidden_dim)
        self.score = nn.Linear(hidden_dim, 1)

    def forward(self, contexts: Tensor, inputs: Tensor, sentences: Tensor) -> SpanGrid:
        """Return all spans of a document.

        `contexts` (words, dim) are outputs of the encoder, `inputs` (words, dim) its inputs, and
        `sentences` (words,) the number of the sentence of each word.
        """
        # Bounded, so that the sums of exponentials below are neither 0 nor infinite.
        logits = _MAX_LOGIT * torch.tanh(self.attend(contexts) / _MAX_LOGIT)
        weights = logits.exp()  # (words, 1)
        first, last, heads = self.first(contexts), self.last(contexts), self.head(inputs) * weights
        head_sum, weight_sum = torch.zeros_like(heads), torch.zeros_like(weights)
        vectors, masks = [], []
        for k in range(self.max_width):
            head_sum = head_sum + _shifted(heads, k)
            weight_sum = weight_sum + _shifted(weights, k)
            parts = first + _shifted(last, k) + head_sum / weight_sum + self.widths.weight[k]
            vectors.append(F.relu(parts))
            masks.append(_shifted(sentences, k, -1) == sentences)
        grid = torch.stack(vectors, dim=1)  # (words, widths, dim)
        return SpanGrid(grid, self.score(grid).squeeze(-1), torch.stack(masks, dim=1))


def _shifted(words: Tensor, by: int, filler: int = 0) -> Tensor:
    """Return the words (words, ...) from the place `by` on, filled at the end."""
    if by == 0:
        return words
    end = words.new_full((min(by, len(words)), *words.shape[1:]), filler)
    return torch.cat([words[by:], end])


def best_spans(grid: SpanGrid, limit: int) -> tuple[Tensor, Tensor]:
    """Return the first words and the widths, less 1, of up to `limit` spans that do not cross.

    The spans are taken by score; one that crosses a span that is already taken is left out. The
    result is in the order of the text.
    """
    places = grid.mask.nonzero()  # (spans, 2)
    scores = grid.scores.detach()[grid.mask]
    places = places[scores.argsort(descending=True, stable=True)]
    rows: list[list[int]] = places.tolist()
    taken = take_without_crossing([(i, i + k) for i, k in rows], limit)
    kept = sorted(rows[i] for i in taken)
    chosen = torch.tensor(kept, device=grid.mask.device)
    return chosen[:, 0], chosen[:, 1]


def take_without_crossing(spans: Sequence[tuple[int, int]], limit: int) -> list[int]:
    """Return the indices of the first `limit` spans, without those that cross an earlier one.

    Spans are (first word, last word). Two spans cross if they overlap and neither contains the
    other.
    """
    largest_last: dict[int, int] = {}  # by first word
    smallest_first: dict[int, int] = {}  # by last word
    taken: list[int] = []
    for i, (first, last) in enumerate(spans):
        if len(taken) >= limit:
            break
        if any(largest_last.get(k, -1) > last for k in range(first + 1, last + 1)):
            continue
        if any(smallest_first.get(k, first) < first for k in range(first, last)):
            continue
        taken.append(i)
        largest_last[first] = max(last, largest_last.get(first, -1))
        smallest_first[last] = min(first, smallest_first.get(last, first))
    return taken
