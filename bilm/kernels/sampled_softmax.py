"""The sampled softmax loss: the cross entropy of a target against a few thousand sampled words.

The logits of the target and of the sampled words are corrected by the log of their expected counts
in the sample. The gradients of weight and bias are sparse, so cost and memory do not depend on the
size of the vocabulary.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bilm.kernels import backends
from bilm.kernels.autograd import apply, without_second_derivative
from bilm.kernels.c_library import Floats, Int64s, Kernel, Size
from bilm.kernels.checks import (
    check_dims,
    check_floats,
    check_ids,
    check_integers,
    check_not_empty,
    check_shape,
)
from bilm.kernels.full_softmax import check_softmax

_sampled_softmax = Kernel(
    "sampled_softmax",
    words=Size,
    count=Size,
    logits=Floats,
    bias=Floats,
    true_logit=Floats,
    hits=Int64s,
    losses=Floats,
    true_share=Floats,
)
_add_rows = Kernel(
    "add_rows",
    count=Size,
    dim=Size,
    places=Int64s,
    scale=Floats,
    rows=Floats,
    sums=Floats,
)


class Candidates(NamedTuple):
    """Word ids and the log of the expected count of each word in the sample."""

    ids: Tensor
    log_counts: Tensor


class SampledRows(NamedTuple):
    """What the loss needs to know about the ids: a function of them, so the host can prepare it."""

    hits: Tensor  # (sets, words) index of a target in the set's sampled words, or -1
    ids: Tensor  # (rows,) distinct sampled words and targets of all sets, ascending
    places: Tensor  # (sets, negatives + words) index into `ids` of each sampled word and target


def sampled_rows(targets: Tensor, sampled: Tensor) -> SampledRows:
    """Return the accidental hits, and the rows of the gradient, of ids (sets, ...)."""
    hits = [_accidental_hits(*ids) for ids in zip(targets, sampled, strict=True)]
    ids, places = torch.unique(torch.cat([sampled, targets], dim=1), return_inverse=True)
    return SampledRows(torch.stack(hits), ids, places)


def sampled_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Candidates,
    sampled: Candidates,
    rows: SampledRows | None = None,
) -> Tensor:
    """Return the cross entropy of each target against the sampled words: (sets, words).

    Each set has its own sample: `hidden` is (sets, words, dim), the targets are (sets, words), the
    sampled words (sets, negatives). A target among its own negatives is masked there. `weight` is
    (vocabulary, dim), `bias` (vocabulary, 1). Computing `rows`, if it is not given, waits for an
    accelerator.
    """
    check_softmax(weight, bias)
    check_floats(hidden=hidden)
    check_dims("hidden", hidden, "sets", "words", "dim")
    num_sets, num_words, _ = hidden.shape
    check_not_empty("sets", num_sets)
    check_shape("hidden", hidden, num_sets, num_words, weight.shape[1])
    for name, (ids, log_counts) in (("targets", targets), ("sampled", sampled)):
        check_integers(f"{name}.ids", ids, weight.device)
        check_dims(f"{name}.ids", ids, "sets", "words" if name == "targets" else "negatives")
        check_floats(**{f"{name}.log_counts": log_counts})
        check_shape(f"{name}.ids", ids, num_sets, num_words if name == "targets" else ids.shape[1])
        check_shape(f"{name}.log_counts", log_counts, *ids.shape)
        check_ids(f"{name}.ids", ids, len(weight))
    check_not_empty("negatives", sampled.ids.shape[1])
    rows = sampled_rows(targets.ids, sampled.ids) if rows is None else rows
    return apply(_SampledLoss, hidden, weight, bias, targets, sampled, rows)


class _SetTensors(NamedTuple):
    """The tensors of one set that backward needs."""

    probabilities: Tensor  # (words, negatives)
    true_share: Tensor  # (words,)
    sampled_weight: Tensor  # (negatives, dim)
    true_weight: Tensor  # (words, dim)


class _SampledLoss(torch.autograd.Function):
    """One product per set with the sampled rows; only the probabilities are saved for backward.

    The gradients of weight and bias are sparse and contain each row once for all sets.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Candidates,
        sampled: Candidates,
        rows: SampledRows,
    ) -> Tensor:
        hidden = hidden.to(weight.dtype)
        ctx.dtype, ctx.vocabulary_size = backends.product_dtype(weight), weight.shape[0]
        all_losses = []
        saved: list[Tensor] = []
        for h, true_ids, true_count, ids, sampled_count, hits in zip(
            hidden, *targets, *sampled, rows.hits, strict=True
        ):
            sampled_weight, true_weight = weight[ids], weight[true_ids]
            sampled_bias = bias[ids, 0] - sampled_count.to(bias.dtype)
            logits = _product(h, sampled_weight.t(), ctx.dtype)  # (words, negatives)
            true_logit = (h * true_weight).sum(dim=1) + bias[true_ids, 0]
            true_logit -= true_count.to(bias.dtype)  # (words,)
            losses, true_share = to_probabilities(logits, sampled_bias, true_logit, hits)
            all_losses.append(losses)
            saved += _SetTensors(logits, true_share, sampled_weight, true_weight)
        ctx.num_negatives = sampled.ids.shape[1]
        ctx.save_for_backward(hidden, rows.ids, rows.places, *saved)
        return torch.stack(all_losses)

    @staticmethod
    @without_second_derivative
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, ids, places, *saved = ctx.saved_tensors
        size = len(_SetTensors._fields)
        sets = [_SetTensors(*saved[i : i + size]) for i in range(0, len(saved), size)]
        rows, biases = hidden.new_zeros(len(ids), hidden.shape[2]), hidden.new_zeros(len(ids), 1)
        grad_hidden = torch.empty_like(hidden)
        for s, (probabilities, true_share, sampled_weight, true_weight) in enumerate(sets):
            grad, h = grads[0][s].contiguous(), hidden[s]  # (words,), (words, dim)
            of_sampled, of_targets = places[s].split([ctx.num_negatives, h.shape[0]])
            # The gradient of each loss scales a row of the probabilities. It is cheaper to scale
            # the narrow side of the products.
            grad_true = (true_share - 1.0) * grad
            grad_h = _product(probabilities, sampled_weight, ctx.dtype)
            grad_hidden[s] = grad_h.mul_(grad.unsqueeze(1)).addcmul_(
                true_weight, grad_true.unsqueeze(1)
            )
            grad_sampled = _product(probabilities.t(), h * grad.unsqueeze(1), ctx.dtype)
            add_rows(rows, of_sampled, grad_sampled, torch.ones_like(grad_sampled[:, 0]))
            add_rows(rows, of_targets, h, grad_true)
            biases.index_add_(0, of_sampled, torch.mv(probabilities.t(), grad).unsqueeze(1))
            biases.index_add_(0, of_targets, grad_true.unsqueeze(1))
        grad_weight = _sparse(ids, rows, ctx.vocabulary_size)
        grad_bias = _sparse(ids, biases, ctx.vocabulary_size)
        return grad_hidden, grad_weight, grad_bias, None, None, None


def _product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Return `a @ b`, computed in `dtype`, in the dtype of `a`."""
    return (a.to(dtype) @ b.to(dtype)).to(a.dtype)


def to_probabilities(
    logits: Tensor, bias: Tensor, true_logit: Tensor, hits: Tensor
) -> tuple[Tensor, Tensor]:
    """Turn `logits` (words, negatives), without their bias, into probabilities in place.

    `hits` (words,) is the column of a word that is among its own negatives, or -1. Returns the
    losses and the probabilities of the true words.
    """
    check_floats(logits=logits, bias=bias, true_logit=true_logit)
    check_dims("logits", logits, "words", "negatives")
    num_words, num_negatives = logits.shape
    check_not_empty("negatives", num_negatives)
    check_shape("bias", bias, num_negatives)
    check_shape("true_logit", true_logit, num_words)
    check_integers("hits", hits, logits.device)
    check_shape("hits", hits, num_words)
    check_ids("hits", hits, num_negatives, minimum=-1)
    backend = backends.choose_in_place(logits, bias, true_logit)
    if backend == "torch":
        return plain_to_probabilities(logits, bias, true_logit, hits)
    if backend == "triton":
        from bilm.kernels.triton_ops import sampled_softmax as in_triton

        return in_triton.to_probabilities(logits, bias, true_logit, hits)
    losses, true_share = torch.empty_like(true_logit), torch.empty_like(true_logit)
    _sampled_softmax(
        words=num_words,
        count=num_negatives,
        logits=logits,
        bias=bias,
        true_logit=true_logit,
        hits=hits.contiguous(),
        losses=losses,
        true_share=true_share,
    )
    return losses, true_share


def plain_to_probabilities(
    logits: Tensor, bias: Tensor, true_logit: Tensor, hits: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute `to_probabilities` in plain PyTorch: the reference."""
    logits += bias
    columns = hits.clamp(min=0).unsqueeze(1)
    masked = torch.where(hits.unsqueeze(1) >= 0, -math.inf, logits.gather(1, columns))
    logits.scatter_(1, columns, masked)
    greatest = torch.maximum(logits.amax(dim=1), true_logit)
    logits.sub_(greatest.unsqueeze(1)).exp_()
    true_share = (true_logit - greatest).exp_()
    total = logits.sum(dim=1) + true_share
    logits.div_(total.unsqueeze(1))
    return total.log() + greatest - true_logit, true_share / total


def _accidental_hits(targets: Tensor, sampled_ids: Tensor) -> Tensor:
    """Return for each word the index of its target in the sampled ids, or -1."""
    ordered, order = torch.sort(sampled_ids)
    places = torch.searchsorted(ordered, targets).clamp_(max=len(ordered) - 1)
    return torch.where(ordered[places] == targets, order[places], -1)


def add_rows(sums: Tensor, places: Tensor, rows: Tensor, scale: Tensor) -> None:
    """Compute `sums[places] += scale * rows` in place; a place may occur several times."""
    check_floats(sums=sums, rows=rows, scale=scale)
    check_dims("sums", sums, "places", "dim")
    check_integers("places", places, sums.device)
    check_dims("places", places, "rows")
    check_shape("rows", rows, len(places), sums.shape[1])
    check_shape("scale", scale, len(places))
    check_ids("places", places, len(sums))
    rows, scale = rows.contiguous(), scale.contiguous()
    backend = backends.choose_in_place(sums, rows, scale)
    if backend == "torch":
        sums.index_add_(0, places, rows * scale.unsqueeze(1))
        return
    if backend == "triton":
        from bilm.kernels.triton_ops import sampled_softmax as in_triton

        in_triton.add_rows(sums, places, rows, scale)
        return
    _add_rows(
        count=rows.shape[0],
        dim=rows.shape[1],
        places=places.contiguous(),
        scale=scale,
        rows=rows,
        sums=sums,
    )


def _sparse(ids: Tensor, rows: Tensor, size: int) -> Tensor:
    """Return a sparse gradient (size, dim), coalesced because the ids are distinct and sorted."""
    return torch.sparse_coo_tensor(
        ids.unsqueeze(0), rows, (size, rows.shape[1]), is_coalesced=True, check_invariants=False
    )
