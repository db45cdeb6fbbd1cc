"""The head of coreference: end-to-end span ranking (Lee et al., 2017 and 2018).

The inputs of the words, `[x; characters; ELMo]`, are read by a biLSTM, one sentence at a time. All
spans of up to `max_span_words` words are scored as mentions; the best ones that do not cross are
kept, and each of them chooses one of its best antecedents, or none. Training maximizes the
likelihood of all true antecedents together. The scores of spans as mentions are also trained as a
classifier of all spans, which the original does not do: without it, a head on few documents does
not begin to learn, because the spans that it keeps are not the mentions.

If the task has singletons, they are mentions too, and a kept span that is not linked is a cluster
of its own if its score is above 0.

Attribute names are part of the saved format: they are the keys of `head.safetensors`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from downstream.features.batches import Batch
from downstream.features.document_source import ClusterTargets
from downstream.heads.antecedents import (
    Antecedents,
    AntecedentScorer,
    PairFeatures,
    SpanSet,
    antecedent_losses,
    true_choices,
)
from downstream.heads.head import Evaluation
from downstream.heads.layers import BiLstmLayer, Dropout, reversed_places
from downstream.heads.spans import SpanGrid, SpanScorer, best_spans
from downstream.heads.word_model import WordHeadDescription, WordModel
from downstream.settings.coreference import COREF_FILE, CorefHeadSettings
from downstream.texts.cluster_scores import score_clusters
from downstream.texts.clusters import Clusters, Mention, linked_clusters

_SENTENCES_READ_TOGETHER = 16


class WindowOutputs(NamedTuple):
    """The outputs for one window: all spans, those that were kept, and their antecedents.

    `first` and `widths` (spans,) are the first word and the width, less 1, of each kept span.
    """

    grid: SpanGrid
    first: Tensor
    widths: Tensor
    antecedents: Antecedents
    first_word: int  # of the window in its document


@dataclass(frozen=True)
class CorefPrediction:
    """The predicted clusters of a window; its loss, if its true clusters were given."""

    clusters: Clusters
    loss: float | None = None


class CorefDescription(WordHeadDescription):
    """The content of coref.json."""

    file_name: ClassVar[str] = COREF_FILE

    format: Literal["bilm-coreference"]
    singletons: bool
    genres: tuple[str, ...]  # of the training documents
    has_speakers: bool
    window_words: Annotated[int, Field(ge=1)]
    head: CorefHeadSettings

    def build(self) -> CorefModel:
        """Return the described mixes and head with new weights."""
        return CorefModel(self)


class CorefModel(WordModel):
    """The mixes and the head: everything that is trained."""

    evaluation_texts: ClassVar[int] = 1

    def __init__(self, description: CorefDescription) -> None:
        super().__init__(description)
        head = description.head
        self.singletons = description.singletons
        self.spans_per_word = head.spans_per_word
        inputs = [self.input_dim] + [2 * head.encoder_dim] * (head.encoder_layers - 1)
        self.encoder = nn.ModuleList(BiLstmLayer(width, head.encoder_dim) for width in inputs)
        self.dropout = Dropout(head.dropout, per_text=True)
        context_dim = 2 * head.encoder_dim + self.widths().get("output", 0)
        self.spans = SpanScorer(context_dim, self.input_dim, head.hidden_dim, head.max_span_words)
        features = PairFeatures(len(description.genres) + 1, description.has_speakers)
        self.antecedents = AntecedentScorer(
            head.hidden_dim, head.hidden_dim, head.dropout, head.max_antecedents, features
        )

    def forward(self, batch: Batch) -> list[WindowOutputs]:
        """Return the outputs for each window of a batch."""
        assert batch.mask is not None
        mixed, mask = self.mixed(batch), batch.mask
        inputs = self.dropout(self.word_inputs(batch, mixed))
        contexts = self._encoded(inputs, mask)
        if "output" in mixed:
            contexts = torch.cat([contexts, mixed["output"][mask]], dim=-1)
        inputs = inputs[mask]  # (words, dim)
        lengths = mask.sum(dim=1)
        sentences = torch.arange(len(lengths), device=mask.device).repeat_interleave(lengths)
        outputs, start, first_sentence = [], 0, 0
        sizes: list[int] = batch.extras["num_sentences"].tolist()
        for i, size in enumerate(sizes):
            end = start + int(lengths[first_sentence : first_sentence + size].sum())
            words = slice(start, end)
            grid = self.spans(contexts[words], inputs[words], sentences[words])
            outputs.append(self._window(grid, batch.extras, i, words))
            start, first_sentence = end, first_sentence + size
        return outputs

    def _encoded(self, inputs: Tensor, mask: Tensor) -> Tensor:
        """Return the outputs of the biLSTM for all words (words, dim), in the order of the text.

        Sentences of similar length are read together: with all sentences of a document in one
        batch, most of the time is spent on padding.
        """
        lengths = mask.sum(dim=1)
        places = torch.zeros_like(mask, dtype=torch.int64)
        places[mask] = torch.arange(int(mask.sum()), device=mask.device)
        parts, orders = [], []
        for chosen in lengths.argsort(stable=True).split(_SENTENCES_READ_TOGETHER):
            longest = int(lengths[chosen].max())
            is_word, hidden = mask[chosen, :longest], inputs[chosen, :longest]
            backwards = reversed_places(is_word)
            for i, layer in enumerate(self.encoder):
                hidden = layer(hidden if i == 0 else self.dropout(hidden), backwards)
            parts.append(self.dropout(hidden)[is_word])
            orders.append(places[chosen, :longest][is_word])
        return torch.cat(parts)[torch.cat(orders).argsort()]

    def _window(self, grid: SpanGrid, extras: Any, index: int, words: slice) -> WindowOutputs:
        """Choose the spans of a window, and score their antecedents."""
        num_words = words.stop - words.start
        first, widths = best_spans(grid, max(1, int(self.spans_per_word * num_words)))
        speakers = extras["speakers"][words][first] if "speakers" in extras else None
        spans = SpanSet(
            grid.vectors[first, widths],
            grid.scores[first, widths],
            speakers,
            extras["genres"][index],
        )
        return WindowOutputs(
            grid, first, widths, self.antecedents(spans), int(extras["first_words"][index])
        )

    def loss(self, outputs: Sequence[WindowOutputs], targets: Tensor) -> Tensor:
        """Return the mean over windows of the loss of links and mentions per word."""
        return self._losses(outputs, targets).mean()

    def _losses(self, outputs: Sequence[WindowOutputs], targets: Tensor) -> Tensor:
        losses = []
        for i, window in enumerate(outputs):
            clusters = true_clusters(window.grid, targets[targets[:, 0] == i])
            kept = clusters[window.first, window.widths]
            links = antecedent_losses(window.antecedents, kept).sum()
            mask = window.grid.mask
            is_mention = (clusters[mask] >= 0).float()
            mentions = F.binary_cross_entropy_with_logits(
                window.grid.scores[mask], is_mention, reduction="sum"
            )
            losses.append((links + mentions) / len(mask))
        return torch.stack(losses)

    def count_correct(self, outputs: Sequence[WindowOutputs], targets: Tensor) -> Tensor:
        """Return the sum over windows of the share of kept spans with a correct choice."""
        shares = []
        for i, window in enumerate(outputs):
            clusters = true_clusters(window.grid, targets[targets[:, 0] == i])
            correct = true_choices(window.antecedents, clusters[window.first, window.widths])
            chosen = window.antecedents.scores.argmax(dim=1, keepdim=True)
            shares.append(correct.gather(1, chosen).float().mean())
        return torch.stack(shares).sum()

    def decode(
        self, outputs: Sequence[WindowOutputs], targets: Tensor | None = None
    ) -> list[CorefPrediction]:
        """Return the clusters of each window, with words counted as in the document."""
        losses: Sequence[float | None] = [None] * len(outputs)
        if targets is not None:
            losses = self._losses(outputs, targets.to(outputs[0].first.device)).tolist()
        return [
            CorefPrediction(self._clusters(window), loss)
            for window, loss in zip(outputs, losses, strict=True)
        ]

    def _clusters(self, window: WindowOutputs) -> Clusters:
        chosen = window.antecedents.scores.argmax(dim=1)  # 0: no antecedent
        no_antecedent = torch.full_like(chosen, -1).unsqueeze(1)
        indices = torch.cat([no_antecedent, window.antecedents.indices], dim=1)
        antecedents = indices.gather(1, chosen.unsqueeze(1)).squeeze(1).tolist()
        scores = window.grid.scores[window.first, window.widths].tolist()
        mentions = [
            Mention(window.first_word + first, window.first_word + first + width)
            for first, width in zip(window.first.tolist(), window.widths.tolist(), strict=True)
        ]
        return linked_clusters(mentions, antecedents, lambda i: self.singletons and scores[i] > 0)

    def evaluate(
        self, predictions: Sequence[CorefPrediction], targets: ClusterTargets
    ) -> Evaluation:
        """Return the mean loss, and the CoNLL score of the documents."""
        loss = float(np.mean([prediction.loss for prediction in predictions]))
        predicted = targets.join([prediction.clusters for prediction in predictions])
        return Evaluation(loss, score_clusters(targets.documents, predicted).conll)


def true_clusters(grid: SpanGrid, targets: Tensor) -> Tensor:
    """Return the true cluster of each span (words, widths), -1 for spans that are not mentions.

    Mentions that are longer than the widths of the grid are left out.
    """
    clusters = torch.full(grid.mask.shape, -1, dtype=torch.int64, device=grid.mask.device)
    _, first, last, cluster = targets.unbind(dim=1)
    fits = last - first < grid.mask.shape[1]
    clusters[first[fits], (last - first)[fits]] = cluster[fits]
    return clusters.masked_fill(~grid.mask, -1)
