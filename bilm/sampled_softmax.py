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
        sampled_loss = cast(Callable[..., Tensor], _SampledLoss.apply)
        return sampled_loss(
            hidden, self.weight, self.bias, targets, sampled_ids, true_log_count, sampled_log_count
        )


class _SampledLoss(torch.autograd.Function):
    """One product against the sampled rows; only the probabilities are kept for backward.

    The gradients of weight and bias are sparse, with each row once.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        sampled_ids: Tensor,
        true_log_count: Tensor,
        sampled_log_count: Tensor,
    ) -> Tensor:
        hidden = hidden.to(weight.dtype)
        sampled_weight, true_weight = weight[sampled_ids], weight[targets]
        sampled_bias = bias[sampled_ids, 0] - sampled_log_count.to(bias.dtype)
        lower = _product_dtype(weight)
        if lower == weight.dtype:
            logits = torch.addmm(sampled_bias, hidden, sampled_weight.t())
        else:
            product = hidden.to(lower) @ sampled_weight.to(lower).t()
            logits = product.to(weight.dtype).add_(sampled_bias)  # (words, num_negatives)
        true_logit = (hidden * true_weight).sum(dim=1) + bias[targets, 0]
        true_logit -= true_log_count.to(bias.dtype)  # (words,)
        words, columns = _accidental_hits(targets, sampled_ids)
        logits[words, columns] = -math.inf

        greatest = torch.maximum(logits.amax(dim=1), true_logit)
        probabilities = logits.sub_(greatest.unsqueeze(1)).exp_()
        true_probability = (true_logit - greatest).exp_()
        total = probabilities.sum(dim=1) + true_probability
        probabilities.div_(total.unsqueeze(1))
        ctx.save_for_backward(
            hidden,
            sampled_weight,
            true_weight,
            targets,
            sampled_ids,
            probabilities,
            true_probability / total,
        )
        ctx.vocabulary_size, ctx.dtype = weight.shape[0], lower
        return total.log_() + greatest - true_logit

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, sampled_weight, true_weight, targets, sampled_ids, *kept = ctx.saved_tensors
        probabilities, true_probability = kept
        grad_logits = probabilities * grads[0].unsqueeze(1)  # (words, num_negatives)
        grad_true = ((true_probability - 1.0) * grads[0]).unsqueeze(1)  # (words, 1)
        lower = grad_logits.to(ctx.dtype)
        grad_hidden = (lower @ sampled_weight.to(ctx.dtype)).to(hidden.dtype)
        grad_hidden.addcmul_(true_weight, grad_true)

        ids, places = torch.unique(torch.cat([sampled_ids, targets]), return_inverse=True)
        of_sampled, of_targets = places.split([len(sampled_ids), len(targets)])
        rows = hidden.new_zeros(len(ids), hidden.shape[1])
        rows[of_sampled] = (lower.t() @ hidden.to(ctx.dtype)).to(hidden.dtype)
        rows.index_add_(0, of_targets, hidden * grad_true)
        biases = hidden.new_zeros(len(ids), 1)
        biases[of_sampled, 0] = grad_logits.sum(dim=0)
        biases.index_add_(0, of_targets, grad_true)
        size = ctx.vocabulary_size
        grad_weight = _sparse(ids, rows, (size, hidden.shape[1]))
        return grad_hidden, grad_weight, _sparse(ids, biases, (size, 1)), None, None, None, None


def _accidental_hits(targets: Tensor, sampled_ids: Tensor) -> tuple[Tensor, Tensor]:
    """The words whose target is among the sampled ids, and its place there."""
    ordered, order = torch.sort(sampled_ids)
    places = torch.searchsorted(ordered, targets).clamp_(max=len(ordered) - 1)
    words = torch.nonzero(ordered[places] == targets).flatten()
    return words, order[places[words]]


def _sparse(ids: Tensor, rows: Tensor, shape: tuple[int, int]) -> Tensor:
    """A sparse gradient; `ids` are distinct and rising, so it is in its final form already."""
    return torch.sparse_coo_tensor(
        ids.unsqueeze(0), rows, shape, is_coalesced=True, check_invariants=False
    )


def _product_dtype(weight: Tensor) -> torch.dtype:
    """The type in which products are to be computed: that of autocast, if it is on."""
    kind = weight.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype


class _FullSoftmaxLoss(torch.autograd.Function):
    """Cross entropy over the whole vocabulary, chunk by chunk; backward computes logits again.

    Products are in the precision of autocast, sums in that of `hidden`.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        ctx.dtype = _product_dtype(weight)
        hidden = hidden.to(weight.dtype)
        with torch.autocast(hidden.device.type, enabled=False):
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
