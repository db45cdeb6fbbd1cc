"""The head that finds answers in passages: attention, self-attention, and two biLSTMs for spans.

The words of the passage and of the question, `[x; characters; ELMo]`, are read by the same biLSTM;
a second mix may be concatenated with its outputs. Attention in both directions gives the words of
the passage given the question, with a feature that marks words that both contain, and
self-attention relates them to each other. One biLSTM scores the words as the first one of the
answer, and a second one, to whose input the outputs of the first are added, as the last one. Apart
from this feature, this is the model of Clark and Gardner (2018) with one recurrent layer fewer. The
loss is the negative logarithm of the total probability of all reference spans.

Attribute names are part of the saved format: they are the keys of `head.safetensors`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from downstream.features.batches import Batch
from downstream.features.span_sources import NO_SPAN, SpanTargets
from downstream.heads.attention import BidirectionalAttention, SelfAttention
from downstream.heads.head import Evaluation
from downstream.heads.layers import BiLstmLayer, Dropout, reversed_places
from downstream.heads.word_model import WordHeadDescription, WordModel
from downstream.settings.spans import ANSWERER_FILE, PlainTokenizer, SpanHeadSettings
from downstream.texts.answers import score_answer
from downstream.texts.passage_words import WordSpan


class Outputs(NamedTuple):
    """The scores (questions, words) of the first and of the last word of the answer.

    They are minus infinity for padding. `window_of` is the window of each question, and `starts`
    the place of each window in its passage.
    """

    first: Tensor
    last: Tensor
    window_of: Tensor
    starts: Tensor


@dataclass(frozen=True)
class SpanPrediction:
    """The most probable span of a window; its loss, if its answers were given.

    `span` is relative to the passage. `score`, the sum of the scores of its first and last word,
    compares spans of different windows.
    """

    span: WordSpan
    probability: float
    score: float
    loss: float | None = None


class AnswererDescription(WordHeadDescription):
    """The content of answerer.json."""

    file_name: ClassVar[str] = ANSWERER_FILE

    format: Literal["bilm-answerer"]
    tokenizer: PlainTokenizer | None  # None for the tokenizer of the biLM
    head: SpanHeadSettings

    def build(self) -> AnswererModel:
        """Return the described mixes and head with new weights."""
        return AnswererModel(self)


class AnswererModel(WordModel):
    """The mixes and the head: everything that is trained."""

    evaluation_texts: ClassVar[int] = 16  # each with several questions

    def __init__(self, description: AnswererDescription) -> None:
        super().__init__(description)
        head = description.head
        dim = 2 * head.span_dim
        self.max_answer_words = head.max_answer_words
        self.encoder = BiLstmLayer(self.input_dim, head.encoder_dim)
        encoded_dim = 2 * head.encoder_dim + self.widths().get("output", 0)
        self.attention = BidirectionalAttention(encoded_dim, dim)
        self.self_attention = SelfAttention(dim)
        self.first_layer = BiLstmLayer(dim, head.span_dim)
        self.first = nn.Linear(dim, 1)
        self.last_layer = BiLstmLayer(dim, head.span_dim)
        self.last = nn.Linear(dim, 1)
        self.dropout = Dropout(head.dropout, per_text=True)

    def forward(self, batch: Batch) -> Outputs:
        """Return the scores of the words of each question's window."""
        questions, window_of = batch.others["questions"], batch.extras["window_of"]
        assert batch.mask is not None
        assert questions.mask is not None
        passage, question = self._encode(batch)[window_of], self._encode(questions)
        mask = batch.mask[window_of]
        words = self.attention(
            self.dropout(passage),
            self.dropout(question),
            mask,
            questions.mask,
            batch.extras["is_asked"],
        )
        words = self.dropout(self.self_attention(self.dropout(words), mask))
        places = reversed_places(mask)
        hidden = self.first_layer(words, places)
        later = self.last_layer(words + self.dropout(hidden), places)
        is_excluded = ~batch.extras["is_answerable"][window_of]
        first, last = (
            layer(self.dropout(states)).squeeze(2).masked_fill(is_excluded, -torch.inf)
            for layer, states in ((self.first, hidden), (self.last, later))
        )
        return Outputs(first, last, window_of, batch.extras["starts"])

    def _encode(self, batch: Batch) -> Tensor:
        """Return the encoded words (texts, words, dim) of passages or questions."""
        assert batch.mask is not None
        mixed = self.mixed(batch)
        inputs = self.dropout(self.word_inputs(batch, mixed))
        hidden: Tensor = self.encoder(inputs, reversed_places(batch.mask))
        return torch.cat([hidden, mixed["output"]], dim=-1) if "output" in mixed else hidden

    def loss(self, outputs: Outputs, spans: Tensor) -> Tensor:
        """Return the mean over questions of the loss."""
        return self._losses(outputs, spans).mean()

    def _losses(self, outputs: Outputs, spans: Tensor) -> Tensor:
        """Return the loss of each question; infinity if none of its answers is in its window."""
        is_span = spans[:, :, 0] != NO_SPAN  # (questions, answers)
        first, last = (
            F.log_softmax(scores, dim=1).gather(1, spans[:, :, k].clamp(min=0))
            for k, scores in enumerate((outputs.first, outputs.last))
        )
        return -(first + last).masked_fill(~is_span, -torch.inf).logsumexp(dim=1)

    def count_correct(self, outputs: Outputs, spans: Tensor) -> Tensor:
        """Return the sum over windows of the share of questions with a right first and last word.

        The two are chosen independently, so this is only an estimate of the accuracy in training.
        """
        chosen = torch.stack([outputs.first.argmax(dim=1), outputs.last.argmax(dim=1)], dim=1)
        is_right = (chosen.unsqueeze(1) == spans).all(dim=2).any(dim=1).float()
        shape = outputs.starts.shape
        right, total = (
            torch.zeros(shape, device=is_right.device).index_add(0, outputs.window_of, values)
            for values in (is_right, torch.ones_like(is_right))
        )
        return (right / total).sum()

    def decode(
        self, outputs: Outputs, spans: Tensor | None = None
    ) -> list[tuple[SpanPrediction, ...]]:
        """Return the most probable span of each question, by window."""
        first, last = (F.log_softmax(s, dim=1) for s in (outputs.first, outputs.last))
        chosen, log_probabilities = best_spans(first, last, self.max_answer_words)
        rows = torch.arange(len(chosen), device=chosen.device)
        scores = outputs.first[rows, chosen[:, 0]] + outputs.last[rows, chosen[:, 1]]
        losses: Sequence[float | None] = [None] * len(chosen)
        if spans is not None:
            values = self._losses(outputs, spans.to(chosen.device)).tolist()
            losses = [None if loss == float("inf") else loss for loss in values]
        starts = outputs.starts[outputs.window_of]
        predictions: list[list[SpanPrediction]] = [[] for _ in outputs.starts]
        for window, span, probability, score, loss in zip(
            outputs.window_of.tolist(),
            (chosen + starts.unsqueeze(1)).tolist(),
            log_probabilities.exp().tolist(),
            scores.tolist(),
            losses,
            strict=True,
        ):
            predictions[window].append(SpanPrediction(WordSpan(*span), probability, score, loss))
        return [tuple(row) for row in predictions]

    def evaluate(
        self, predictions: Sequence[tuple[SpanPrediction, ...]], targets: SpanTargets
    ) -> Evaluation:
        """Return the mean loss of the windows with an answer, and the mean F1 of the answers."""
        losses = [p.loss for window in predictions for p in window if p.loss is not None]
        scores = [
            score_answer(question.passage.text_of(prediction.span), question.references).f1
            for question, prediction in zip(
                targets.questions, best_predictions(predictions, targets), strict=True
            )
        ]
        return Evaluation(sum(losses) / max(1, len(losses)), sum(scores) / len(scores))


def best_spans(first: Tensor, last: Tensor, max_words: int) -> tuple[Tensor, Tensor]:
    """Return the spans (texts, 2) with the highest sum of scores, and the sums (texts).

    `first` and `last` (texts, words) are scores of the first and the last word. The search is
    exact: for each last word, the best first word is the maximum of a sliding window.
    """
    width = min(max_words, first.shape[1])
    padded = F.pad(first, (width - 1, 0), value=-torch.inf).unsqueeze(1)
    best, indices = F.max_pool1d(padded, width, stride=1, return_indices=True)
    sums, ends = (best.squeeze(1) + last).max(dim=1)
    starts = indices.squeeze(1).gather(1, ends.unsqueeze(1)).squeeze(1) - (width - 1)
    return torch.stack([starts, ends], dim=1), sums


def best_predictions(
    predictions: Sequence[tuple[SpanPrediction, ...]], targets: SpanTargets
) -> list[SpanPrediction]:
    """Return the prediction with the highest score among all windows of each question."""
    best: dict[int, SpanPrediction] = {}
    for example, window in zip(targets.examples, predictions, strict=True):
        for question, prediction in zip(example.questions, window, strict=True):
            if question not in best or prediction.score > best[question].score:
                best[question] = prediction
    return [best[i] for i in range(len(targets.questions))]
