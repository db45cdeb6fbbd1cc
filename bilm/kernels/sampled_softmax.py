"""The softmax over the vocabulary: sampled in training, full in evaluation.

Sampled: the loss of a target against a few thousand negatives drawn log-uniformly, with both
logits corrected by the log of how often they were to be expected. Its gradients are sparse: cost
and memory do not depend on the size of the vocabulary.

Full: in chunks of the vocabulary with a streaming logsumexp, forward and backward, so that
vocabulary x words logits never exist at once.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bilm.kernels import c_library as native


class _SampledLoss(torch.autograd.Function):
    """One product a set against the sampled rows; only the probabilities are kept for backward.

    The gradients of weight and bias are sparse, with each row once for all sets.
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
        ctx.dtype, ctx.vocabulary_size = _product_dtype(weight), weight.shape[0]
        all_losses, kept = [], []
        for h, true_ids, ids, true_count, sampled_count in zip(
            hidden, targets, sampled_ids, true_log_count, sampled_log_count, strict=True
        ):
            sampled_weight, true_weight = weight[ids], weight[true_ids]
            sampled_bias = bias[ids, 0] - sampled_count.to(bias.dtype)
            logits = _product(h, sampled_weight.t(), ctx.dtype)  # (words, num_negatives)
            true_logit = (h * true_weight).sum(dim=1) + bias[true_ids, 0]
            true_logit -= true_count.to(bias.dtype)  # (words,)
            hits = _accidental_hits(true_ids, ids)
            losses, true_share = _to_probabilities(logits, sampled_bias, true_logit, hits)
            all_losses.append(losses)
            kept += [logits, true_share, sampled_weight, true_weight]
        ctx.save_for_backward(hidden, targets, sampled_ids, *kept)
        return torch.stack(all_losses)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, targets, sampled_ids, *kept = ctx.saved_tensors
        num_sets, dim = hidden.shape[0], hidden.shape[2]
        ids, places = torch.unique(torch.cat([sampled_ids, targets], dim=1), return_inverse=True)
        rows, biases = hidden.new_zeros(len(ids), dim), hidden.new_zeros(len(ids), 1)
        grad_hidden = torch.empty_like(hidden)
        for s in range(num_sets):
            probabilities, true_share, sampled_weight, true_weight = kept[4 * s : 4 * s + 4]
            grad, h = grads[0][s].contiguous(), hidden[s]  # (words,), (words, dim)
            of_sampled, of_targets = places[s].split([sampled_ids.shape[1], targets.shape[1]])
            # A row's gradient scales its probabilities: cheaper on the narrow side of a product.
            grad_true = (true_share - 1.0) * grad
            grad_h = _product(probabilities, sampled_weight, ctx.dtype)
            grad_hidden[s] = grad_h.mul_(grad.unsqueeze(1)).addcmul_(
                true_weight, grad_true.unsqueeze(1)
            )
            grad_sampled = _product(probabilities.t(), h * grad.unsqueeze(1), ctx.dtype)
            _add_rows(rows, of_sampled, grad_sampled, torch.ones_like(grad_sampled[:, 0]))
            _add_rows(rows, of_targets, h, grad_true)
            biases.index_add_(0, of_sampled, torch.mv(probabilities.t(), grad).unsqueeze(1))
            biases.index_add_(0, of_targets, grad_true.unsqueeze(1))
        size = ctx.vocabulary_size
        grad_weight = _sparse(ids, rows, (size, dim))
        return grad_hidden, grad_weight, _sparse(ids, biases, (size, 1)), None, None, None, None


def _product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """A product in the given precision, in the type of `a`."""
    return (a.to(dtype) @ b.to(dtype)).to(a.dtype)


def _to_probabilities(
    logits: Tensor, bias: Tensor, true_logit: Tensor, hits: Tensor
) -> tuple[Tensor, Tensor]:
    """Turn `logits` (words, num_negatives), still without bias, into probabilities in place.

    `hits` (words,) is the column of a word that is among its own negatives, or -1. Returns losses
    and the probabilities of the true words.
    """
    if native.is_available(logits):
        losses, true_share = torch.empty_like(true_logit), torch.empty_like(true_logit)
        shape = logits.shape
        native.call(
            *("sampled_softmax", logits.dtype, *shape, logits, bias, true_logit, hits),
            *(losses, true_share),
        )
        return losses, true_share
    logits += bias
    words = torch.nonzero(hits >= 0).flatten()
    logits[words, hits[words]] = -math.inf
    greatest = torch.maximum(logits.amax(dim=1), true_logit)
    logits.sub_(greatest.unsqueeze(1)).exp_()
    true_share = (true_logit - greatest).exp_()
    total = logits.sum(dim=1) + true_share
    logits.div_(total.unsqueeze(1))
    return total.log() + greatest - true_logit, true_share / total


def _accidental_hits(targets: Tensor, sampled_ids: Tensor) -> Tensor:
    """For each word the place of its target among the sampled ids, or -1."""
    ordered, order = torch.sort(sampled_ids)
    places = torch.searchsorted(ordered, targets).clamp_(max=len(ordered) - 1)
    return torch.where(ordered[places] == targets, order[places], -1)


def _add_rows(sums: Tensor, places: Tensor, rows: Tensor, scale: Tensor) -> None:
    """`sums[places] += scale * rows`, also where a place stands more than once."""
    if native.is_available(sums, rows):
        places, rows = places.contiguous(), rows.contiguous()
        native.call("add_rows", sums.dtype, *rows.shape, places, scale.contiguous(), rows, sums)
    else:
        sums.index_add_(0, places, rows * scale.unsqueeze(1))


def _sparse(ids: Tensor, rows: Tensor, shape: tuple[int, int]) -> Tensor:
    """A sparse gradient; `ids` are distinct and rising, so it is in its final form already."""
    return torch.sparse_coo_tensor(
        ids.unsqueeze(0), rows, shape, is_coalesced=True, check_invariants=False
    )


def _product_dtype(weight: Tensor) -> torch.dtype:
    """The type in which products are to be computed: that of autocast, if it is on."""
    kind = weight.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else weight.dtype
