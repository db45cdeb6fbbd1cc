"""The full softmax: its loss, and its most likely words, in plain PyTorch.

The vocabulary is processed in chunks with a streaming logsumexp, forward and backward, so that the
(words, vocabulary) logits are never all in memory. Backward computes the logits again.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bilm.kernels.autograd import apply, without_second_derivative
from bilm.kernels.backends import product_dtype
from bilm.kernels.checks import (
    check_dims,
    check_floats,
    check_ids,
    check_integers,
    check_not_empty,
    check_shape,
)

MAX_CHUNK_LOGITS = 1 << 25  # in memory at once: 128 MB in float32


def full_loss(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of each word: (words,).

    `hidden` is (words, dim), `weight` (vocabulary, dim), `bias` (vocabulary, 1) and `targets`
    (words,).
    """
    check_softmax(weight, bias)
    check_floats(hidden=hidden)
    check_integers("targets", targets, weight.device)
    check_dims("targets", targets, "words")
    check_shape("hidden", hidden, len(targets), weight.shape[1])
    check_ids("targets", targets, len(weight))
    return apply(_FullLoss, hidden, weight, bias, targets)


def most_likely(hidden: Tensor, weight: Tensor, bias: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` most likely words: log probabilities and ids, both (words, count).

    `hidden` is (words, dim), `weight` (vocabulary, dim) and `bias` (vocabulary, 1). Each row is
    sorted by descending probability. There is no gradient.
    """
    check_softmax(weight, bias)
    check_floats(hidden=hidden)
    check_dims("hidden", hidden, "words", "dim")
    check_shape("hidden", hidden, len(hidden), weight.shape[1])
    if type(count) is not int or not 1 <= count <= len(weight):
        raise ValueError(f"count is {count!r}; it must be an integer from 1 to {len(weight)}")
    dtype = product_dtype(weight)
    hidden = hidden.detach().to(weight.dtype)
    normalizer = hidden.new_full((len(hidden),), -math.inf)
    best = hidden.new_empty(len(hidden), 0)
    ids = torch.empty(len(hidden), 0, dtype=torch.int64, device=hidden.device)
    with torch.no_grad(), torch.autocast(hidden.device.type, enabled=False):
        for start, stop in _chunks(hidden.shape[0], weight.shape[0]):
            logits = _chunk_logits(hidden, weight, bias, start, stop, dtype)
            normalizer = torch.logaddexp(normalizer, torch.logsumexp(logits, dim=1))
            own_best, own_ids = logits.topk(min(count, stop - start), dim=1)
            best = torch.cat([best, own_best], dim=1)  # (words, at most 2 x count)
            ids = torch.cat([ids, own_ids + start], dim=1)
            best, places = best.topk(min(count, best.shape[1]), dim=1)
            ids = ids.gather(1, places)
    return best - normalizer.unsqueeze(1), ids


def check_softmax(weight: Tensor, bias: Tensor) -> None:
    """Check the weight (vocabulary, dim) and the bias (vocabulary, 1) of a softmax."""
    check_floats(weight=weight, bias=bias)
    check_dims("weight", weight, "vocabulary", "dim")
    check_shape("bias", bias, len(weight), 1)
    check_not_empty("vocabulary", len(weight))


class _FullLoss(torch.autograd.Function):
    """Computes products in autocast's precision, and sums in that of `weight`."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        ctx.dtype = product_dtype(weight)
        hidden = hidden.to(weight.dtype)
        with torch.autocast(hidden.device.type, enabled=False):
            normalizer = hidden.new_full(targets.shape, -math.inf)
            for start, stop in _chunks(hidden.shape[0], weight.shape[0]):
                logits = _chunk_logits(hidden, weight, bias, start, stop, ctx.dtype)
                normalizer = torch.logaddexp(normalizer, torch.logsumexp(logits, dim=1))
            true_logit = (hidden * weight[targets]).sum(dim=1) + bias[targets, 0]
        ctx.save_for_backward(hidden, weight, bias, targets, normalizer)
        return normalizer - true_logit

    @staticmethod
    @without_second_derivative
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, normalizer = ctx.saved_tensors
        grad = grads[0].unsqueeze(1)  # (words, 1)
        grad_hidden = torch.zeros_like(hidden)
        grad_weight = torch.zeros_like(weight)
        grad_bias = torch.zeros_like(bias)
        lower_hidden = hidden.to(ctx.dtype)
        for start, stop in _chunks(hidden.shape[0], weight.shape[0]):
            logits = _chunk_logits(hidden, weight, bias, start, stop, ctx.dtype)
            grad_logits = torch.exp(logits - normalizer.unsqueeze(1)).mul_(grad)
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
    """Return the logits of one chunk of the vocabulary: (words, stop - start), like `hidden`."""
    if dtype == hidden.dtype:
        return torch.addmm(bias[start:stop, 0], hidden, weight[start:stop].t())
    product = hidden.to(dtype) @ weight[start:stop].to(dtype).t()
    return product.to(hidden.dtype) + bias[start:stop, 0]


def _chunks(num_words: int, vocabulary_size: int) -> list[tuple[int, int]]:
    """Return ranges of the vocabulary whose logits for `num_words` fit in MAX_CHUNK_LOGITS."""
    size = max(1, MAX_CHUNK_LOGITS // max(1, num_words))
    return [
        (start, min(start + size, vocabulary_size)) for start in range(0, vocabulary_size, size)
    ]
