"""Scores of pairs of spans: a coarse one for all pairs, a fine one for the best antecedents.

The score of a span i with an antecedent j is `m(i) + m(j) + c(i, j) + a(i, j)`: the scores of both
as mentions, a bilinear score, and the score of a network on both vectors, their product, their
distance, and if the data have them, the genre and whether the speakers are the same. Only the
`max_antecedents` antecedents with the largest coarse score, the sum without a, get a fine one. The
score of having no antecedent is 0.

Cost: for S spans and K antecedents, memory of S^2 and S x K x hidden_dim numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from downstream.heads.layers import Dropout, small_embedding

# Distances in spans: 1, 2, 3, 4, 5-7, 8-15, 16-31, 32-63, 64 and more.
_DISTANCE_BOUNDARIES = (2, 3, 4, 5, 8, 16, 32, 64)


class SpanSet(NamedTuple):
    """The kept spans of a document in the order of the text.

    `vectors` are (spans, dim), `scores` as mentions (spans,); `speakers` (spans,) or None, and
    `genre` () the number of the genre of the document.
    """

    vectors: Tensor
    scores: Tensor
    speakers: Tensor | None
    genre: Tensor


class Antecedents(NamedTuple):
    """The best antecedents of each span: their indices (spans, K) and scores (spans, K + 1).

    The first score is that of having no antecedent. Places without an antecedent have the score
    -inf.
    """

    indices: Tensor
    scores: Tensor


@dataclass(frozen=True)
class PairFeatures:
    """The features of pairs that the data have; `num_genres` includes the unknown genre."""

    num_genres: int
    has_speakers: bool


class AntecedentScorer(nn.Module):
    """Finds and scores the antecedents of all spans of a document."""

    def __init__(
        self,
        dim: int,
        hidden_dim: int,
        dropout: float,
        max_antecedents: int,
        features: PairFeatures,
    ) -> None:
        super().__init__()
        self.max_antecedents = max_antecedents
        self.coarse = nn.Linear(dim, dim, bias=False)
        self.span = nn.Linear(dim, hidden_dim)
        self.antecedent = nn.Linear(dim, hidden_dim, bias=False)
        self.product = nn.Linear(dim, hidden_dim, bias=False)
        self.distances = small_embedding(len(_DISTANCE_BOUNDARIES) + 1, hidden_dim)
        self.genres: nn.Embedding | None = None
        if features.num_genres > 1:
            self.genres = small_embedding(features.num_genres, hidden_dim, padding_idx=0)
        self.speakers = small_embedding(2, hidden_dim) if features.has_speakers else None
        self.dropout = Dropout(dropout)
        # All antecedents of a span share a mask, which is K times smaller.
        self.pair_dropout = Dropout(dropout, per_text=True)
        self.score = nn.Linear(hidden_dim, 1)
        boundaries = torch.tensor(_DISTANCE_BOUNDARIES)
        self.register_buffer("boundaries", boundaries, persistent=False)

    boundaries: Tensor

    def forward(self, spans: SpanSet) -> Antecedents:
        """Return the best antecedents of each span."""
        indices, coarse = self._best(spans)
        fine = self._fine(spans, indices)
        none = coarse.new_zeros(len(coarse), 1)
        return Antecedents(indices, torch.cat([none, coarse + fine], dim=1))

    def _best(self, spans: SpanSet) -> tuple[Tensor, Tensor]:
        """Return the antecedents with the best coarse scores (spans, K), and these scores."""
        vectors, scores = spans.vectors, spans.scores
        count = len(scores)
        pairs = self.coarse(self.dropout(vectors)) @ self.dropout(vectors).T  # (spans, spans)
        pairs = pairs + scores.unsqueeze(1) + scores.unsqueeze(0)
        places = torch.arange(count, device=scores.device)
        is_earlier = places.unsqueeze(0) < places.unsqueeze(1)
        pairs = pairs.masked_fill(~is_earlier, -torch.inf)
        coarse, indices = pairs.topk(min(self.max_antecedents, count - 1), dim=1)
        return indices, coarse

    def _fine(self, spans: SpanSet, indices: Tensor) -> Tensor:
        """Return the fine scores (spans, K)."""
        vectors = self.dropout(spans.vectors)
        places = torch.arange(len(vectors), device=indices.device).unsqueeze(1)
        # A later span in a place without an antecedent has a coarse score of -inf.
        distances = torch.bucketize((places - indices).clamp(min=1), self.boundaries, right=True)
        hidden = self.span(vectors).unsqueeze(1) + self.antecedent(vectors)[indices]
        hidden = hidden + self.product(vectors.unsqueeze(1) * vectors[indices])
        hidden = hidden + self.distances(distances)  # (spans, K, dim)
        if self.genres is not None:
            hidden = hidden + self.genres(spans.genre)
        if self.speakers is not None and spans.speakers is not None:
            same = spans.speakers.unsqueeze(1) == spans.speakers[indices]
            hidden = hidden + self.speakers(same.long())
        fine: Tensor = self.score(self.pair_dropout(F.relu(hidden))).squeeze(-1)
        return fine


def antecedent_losses(antecedents: Antecedents, clusters: Tensor) -> Tensor:
    """Return the negative log-likelihood of the true antecedents of each span (spans,).

    `clusters` (spans,) has the true cluster of each span, -1 for spans that are not mentions. If no
    true antecedent of a span was kept, it should have none.
    """
    scores = antecedents.scores
    true = scores.masked_fill(~true_choices(antecedents, clusters), -torch.inf)
    return scores.logsumexp(dim=1) - true.logsumexp(dim=1)


def true_choices(antecedents: Antecedents, clusters: Tensor) -> Tensor:
    """Return which choices are correct (spans, K + 1); the first is to have no antecedent."""
    same = clusters[antecedents.indices] == clusters.unsqueeze(1)
    same = same & (clusters >= 0).unsqueeze(1) & antecedents.scores[:, 1:].isfinite()
    return torch.cat([~same.any(dim=1, keepdim=True), same], dim=1)
