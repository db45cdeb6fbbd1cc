"""The head of tagging tasks: a biLSTM over words and a linear-chain CRF over tags.

The input of a word is `[x; characters; predicate; ELMo]`: its own vector, features of its
characters from a CNN, an embedding of whether it is the predicate (for semantic roles), and the
mix, each if there is one. A second mix may be concatenated with the outputs of the biLSTM.

Attribute names are part of the saved format: they are the keys of `head.safetensors`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from downstream.features.batches import Batch
from downstream.features.tag_sources import NO_TAG, TagTargets
from downstream.heads.crf import LinearChainCrf
from downstream.heads.head import Evaluation
from downstream.heads.layers import BiLstmLayer, Dropout, reversed_places
from downstream.heads.word_model import WordHeadDescription, WordModel
from downstream.settings.tagging import TAGGER_FILE, TagHeadSettings
from downstream.texts.tag_sequences import SpanRules, span_f1

_PREDICATE_DIM = 16


class Outputs(NamedTuple):
    """The scores of labels (sentences, words, labels), and the mask of words."""

    emissions: Tensor
    mask: Tensor


@dataclass(frozen=True)
class TagPrediction:
    """The predicted tags of an example; its loss, if its true tags were given."""

    tags: tuple[str, ...]
    loss: float | None = None


@dataclass(frozen=True)
class TagLabels:
    """The labels of a tagger, whether they are BIO tags, and the spans that scores compare."""

    names: tuple[str, ...]
    is_bio: bool
    rules: SpanRules


class TaggerDescription(WordHeadDescription):
    """The content of tagger.json."""

    file_name: ClassVar[str] = TAGGER_FILE

    format: Literal["bilm-tagger"]
    labels: Annotated[tuple[str, ...], Field(min_length=2)]
    is_bio: bool
    excluded: tuple[str, ...]
    has_predicates: bool
    predicate_words: tuple[str, ...]  # words that are usually predicates, in lower case
    head: TagHeadSettings

    def build(self) -> TaggerModel:
        """Return the described mixes and head with new weights."""
        return TaggerModel(self)

    @property
    def tag_labels(self) -> TagLabels:
        """The labels of the head."""
        return TagLabels(self.labels, self.is_bio, SpanRules(self.excluded, self.has_predicates))


class TaggerModel(WordModel):
    """The mixes and the head: everything that is trained."""

    def __init__(self, description: TaggerDescription) -> None:
        super().__init__(description)
        head, input_dim = description.head, self.input_dim
        self.labels = description.tag_labels
        self.predicates: nn.Embedding | None = None
        if description.has_predicates:
            self.predicates = nn.Embedding(2, _PREDICATE_DIM)
            input_dim += _PREDICATE_DIM
        inputs = [input_dim] + [2 * head.encoder_dim] * (head.encoder_layers - 1)
        self.encoder = nn.ModuleList(BiLstmLayer(width, head.encoder_dim) for width in inputs)
        self.dropout = Dropout(head.dropout, per_text=True)
        output_dim = 2 * head.encoder_dim + self.widths().get("output", 0)
        self.emit = nn.Linear(output_dim, len(self.labels.names))
        self.crf = LinearChainCrf(self.labels.names, self.labels.is_bio, trained=head.crf)

    def forward(self, batch: Batch) -> Outputs:
        """Return the scores of the labels of each word."""
        assert batch.mask is not None
        mixed = self.mixed(batch)
        predicates = []
        if self.predicates is not None:
            predicates.append(self.predicates(batch.extras["predicates"]))
        hidden = self.word_inputs(batch, mixed, predicates)
        places = reversed_places(batch.mask)
        for layer in self.encoder:
            hidden = layer(self.dropout(hidden), places)
        if "output" in mixed:
            hidden = torch.cat([hidden, mixed["output"]], dim=-1)
        return Outputs(self.emit(self.dropout(hidden)), batch.mask)

    def loss(self, outputs: Outputs, tags: Tensor) -> Tensor:
        """Return the mean over sentences of the negative log-likelihood."""
        return self._losses(outputs, tags).mean()

    def _losses(self, outputs: Outputs, tags: Tensor) -> Tensor:
        emissions, mask = outputs
        if self.crf.trained:
            return -self.crf.log_likelihood(emissions, tags, mask)
        losses = F.cross_entropy(
            emissions.transpose(1, 2), tags, ignore_index=NO_TAG, reduction="none"
        )
        return losses.sum(dim=1)

    def count_correct(self, outputs: Outputs, tags: Tensor) -> Tensor:
        """Return the sum over sentences of the share of words whose best score is that of the tag.

        Transitions are ignored, so this is only an estimate of the accuracy in training.
        """
        correct = ((outputs.emissions.argmax(dim=2) == tags) & outputs.mask).sum(dim=1)
        return (correct / outputs.mask.sum(dim=1)).sum()

    def decode(self, outputs: Outputs, tags: Tensor | None = None) -> list[TagPrediction]:
        """Return the most probable tags of each sentence."""
        paths = self.crf.best_paths(outputs.emissions, outputs.mask).cpu().numpy()
        lengths = outputs.mask.sum(dim=1).tolist()
        losses: Sequence[float | None] = [None] * len(paths)
        if tags is not None:
            losses = self._losses(outputs, tags.to(outputs.mask.device)).tolist()
        names = self.labels.names
        return [
            TagPrediction(tuple(names[i] for i in path[:length]), loss)
            for path, length, loss in zip(paths, lengths, losses, strict=True)
        ]

    def evaluate(self, predictions: Sequence[TagPrediction], targets: TagTargets) -> Evaluation:
        """Return the mean loss, and the F1 of spans or the accuracy of plain tags."""
        loss = float(np.mean([prediction.loss for prediction in predictions]))
        predicted = [prediction.tags for prediction in predictions]
        if not self.labels.is_bio:
            return Evaluation(loss, tag_accuracy(targets.tags, predicted))
        return Evaluation(loss, span_f1(targets.tags, predicted, self.labels.rules))


def tag_accuracy(truth: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """Return the share of words whose predicted tag is the true one."""
    pairs = zip(truth, predicted, strict=True)
    num_correct = sum(a == b for gold, found in pairs for a, b in zip(gold, found, strict=True))
    return num_correct / sum(map(len, truth))
