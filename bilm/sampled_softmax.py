"""The softmax over the vocabulary: sampled in training, full in evaluation.

Sampled: the loss of a target against a few thousand negatives drawn log-uniformly, with both
logits corrected by the log of how often they were to be expected. Its gradients are sparse: cost
and memory do not depend on the size of the vocabulary.

Full: in chunks of the vocabulary with a streaming logsumexp, forward and backward, so that
vocabulary x words logits never exist at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

IGNORED = -1  # a target that is no prediction
CHUNK_LOGITS = 1 << 25  # logits held at once by the full softmax: 128 MB in float32


class Negatives(NamedTuple):
    """Distinct word ids and the log of how often each word was to be expected among them."""

    ids: Tensor  # (num_negatives,) long
    num_tries: int  # draws that it took to get them distinct


def log_uniform(ids: Tensor, vocabulary_size: int) -> Tensor:
    """`P(k) = log((k + 2) / (k + 1)) / log(V + 1)`, in float64: the draw's distribution."""
    return torch.log1p(1.0 / (ids.double() + 1.0)) / math.log(vocabulary_size + 1.0)


def log_expected_count(ids: Tensor, num_tries: int, vocabulary_size: int) -> Tensor:
    """Log of the chance that a word is among the distinct ones of `num_tries` draws."""
    p = log_uniform(ids, vocabulary_size)
    return torch.log(-torch.expm1(num_tries * torch.log1p(-p)))


def draw_negatives(num_negatives: int, vocabulary_size: int, seed: tuple[int, ...]) -> Negatives:
    """Draw until `num_negatives` distinct words are found; a pure function of the seed.

    When all words are asked for, each is certain, no draw is needed, and `num_tries` is 0.
    """
    if num_negatives >= vocabulary_size:
        return Negatives(torch.arange(vocabulary_size), 0)
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence(seed)))
    draws = np.empty(0, dtype=np.int64)
    while True:
        uniform = generator.random(max(1024, 2 * num_negatives))
        more = np.exp(uniform * math.log(vocabulary_size + 1.0)).astype(np.int64) - 1
        # Rounding may reach V itself; the chance is that of the last word.
        draws = np.concatenate([draws, np.minimum(more, vocabulary_size - 1)])
        _, first = np.unique(draws, return_index=True)
        if len(first) >= num_negatives:
            first = np.sort(first)[:num_negatives]  # in the order in which they were drawn
            return Negatives(torch.from_numpy(draws[first]), int(first[-1]) + 1)


class SampledSoftmax(nn.Module):
    """Hidden vectors (words, dim) and targets (words,) to losses (words,)."""

    def __init__(self, vocabulary_size: int, dim: int, weight: nn.Parameter | None = None) -> None:
        super().__init__()
        self.vocabulary_size = vocabulary_size
        self.is_tied = weight is not None
        self.weight = (
            weight if weight is not None else nn.Parameter(torch.empty(vocabulary_size, dim))
        )
        self.bias = nn.Parameter(torch.empty(vocabulary_size, 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """A tied weight belongs to the input, which initialises it."""
        if not self.is_tied:
            nn.init.normal_(self.weight, 0.0, 1.0 / math.sqrt(self.weight.shape[1]))
        nn.init.zeros_(self.bias)

    def forward(self, hidden: Tensor, targets: Tensor, negatives: Negatives | None) -> Tensor:
        """Loss per word, 0 where the target is `IGNORED`; the full softmax without negatives."""
        real = targets.clamp(min=0)
        if negatives is None:
            full_loss = cast(Callable[..., Tensor], _FullSoftmaxLoss.apply)
            losses = full_loss(hidden, self.weight, self.bias, real)
        else:
            true_log_count = sampled_log_count = torch.zeros(())
            if negatives.num_tries:
                size = self.vocabulary_size
                true_log_count = log_expected_count(real, negatives.num_tries, size)
                sampled_log_count = log_expected_count(negatives.ids, negatives.num_tries, size)
            losses = self.sampled_loss(
                hidden, real, negatives.ids, true_log_count, sampled_log_count
            )
        return losses.masked_fill(targets == IGNORED, 0.0)

    def sampled_loss(
        self,
        hidden: Tensor,
        targets: Tensor,
        sampled_ids: Tensor,
        true_log_count: Tensor,
        sampled_log_count: Tensor,
    ) -> Tensor:
        """Cross entropy of each target against the sampled words, accidental hits masked."""
        num_words = targets.shape[0]
        ids = torch.cat([targets, sampled_ids])
        weight = F.embedding(ids, self.weight, sparse=True)
        bias = F.embedding(ids, self.bias, sparse=True).squeeze(1)
        true_weight, sampled_weight = weight.split([num_words, len(sampled_ids)])
        true_bias, sampled_bias = bias.split([num_words, len(sampled_ids)])

        true_logit = (hidden * true_weight).sum(dim=1) + true_bias
        true_logit = true_logit - true_log_count.to(true_logit.dtype)  # (words,)
        sampled_logits = torch.addmm(
            sampled_bias - sampled_log_count.to(bias.dtype), hidden, sampled_weight.t()
        )  # (words, num_negatives)
        hits = targets.unsqueeze(1) == sampled_ids.unsqueeze(0)
        sampled_logits = sampled_logits.masked_fill(hits, -math.inf)
        logits = torch.cat([true_logit.unsqueeze(1), sampled_logits.to(true_logit.dtype)], dim=1)
        losses: Tensor = torch.logsumexp(logits, dim=1) - true_logit
        return losses


class _FullSoftmaxLoss(torch.autograd.Function):
    """Cross entropy over the whole vocabulary, chunk by chunk; backward computes logits again.

    Products are in the precision of autocast, sums in that of `hidden`.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        kind = hidden.device.type
        is_lower = torch.is_autocast_enabled(kind)
        ctx.dtype = torch.get_autocast_dtype(kind) if is_lower else weight.dtype
        hidden = hidden.to(weight.dtype)
        with torch.autocast(kind, enabled=False):
            normaliser = hidden.new_full(targets.shape, -math.inf)
            for start, stop in _chunks(hidden.shape[0], weight.shape[0]):
                logits = _chunk_logits(hidden, weight, bias, start, stop, ctx.dtype)
                normaliser = torch.logaddexp(normaliser, torch.logsumexp(logits, dim=1))
            true_logit = (hidden * weight[targets]).sum(dim=1) + bias[targets, 0]
        ctx.save_for_backward(hidden, weight, bias, targets, normaliser)
        return normaliser - true_logit

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, normaliser = ctx.saved_tensors
        grad = grads[0].unsqueeze(1)  # (words, 1)
        grad_hidden = torch.zeros_like(hidden)
        grad_weight = torch.zeros_like(weight)
        grad_bias = torch.zeros_like(bias)
        lower_hidden = hidden.to(ctx.dtype)
        for start, stop in _chunks(hidden.shape[0], weight.shape[0]):
            logits = _chunk_logits(hidden, weight, bias, start, stop, ctx.dtype)
            grad_logits = torch.exp(logits - normaliser.unsqueeze(1)).mul_(grad)
            lower = grad_logits.to(ctx.dtype)
            grad_hidden += lower @ weight[start:stop].to(ctx.dtype)
            grad_weight[start:stop] = lower.t() @ lower_hidden
            torch.sum(grad_logits, dim=0, out=grad_bias[start:stop, 0])
        grad_hidden.sub_(weight[targets] * grad)
        grad_weight.index_add_(0, targets, hidden * grad, alpha=-1)
        grad_bias.index_add_(0, targets, grad, alpha=-1)
        return grad_hidden, grad_weight, grad_bias, None


def _chunk_logits(
    hidden: Tensor, weight: Tensor, bias: Tensor, start: int, stop: int, dtype: torch.dtype
) -> Tensor:
    """Logits of one chunk of the vocabulary: (words, stop - start), in the type of `hidden`."""
    if dtype == hidden.dtype:
        return torch.addmm(bias[start:stop, 0], hidden, weight[start:stop].t())
    product = hidden.to(dtype) @ weight[start:stop].to(dtype).t()
    return product.to(hidden.dtype) + bias[start:stop, 0]


def _chunks(num_words: int, vocabulary_size: int) -> list[tuple[int, int]]:
    """Ranges of the vocabulary whose logits, for so many words, fit into CHUNK_LOGITS."""
    size = max(1, CHUNK_LOGITS // max(1, num_words))
    return [
        (start, min(start + size, vocabulary_size)) for start in range(0, vocabulary_size, size)
    ]
