"""The softmax over the vocabulary: sampled in training, full in evaluation.

Sampled: the loss of a target against a few thousand negatives drawn log-uniformly, with both
logits corrected by the log of how often they were to be expected. Its gradients are sparse: cost
and memory do not depend on the size of the vocabulary.

Full: in chunks of the vocabulary with a streaming logsumexp, forward and backward, so that
vocabulary x words logits never exist at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from bilm import native

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
    """Hidden vectors (directions, words, dim) and targets (directions, words) to their losses."""

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

    def forward(
        self, hidden: Tensor, targets: Tensor, negatives: Sequence[Negatives] | None
    ) -> Tensor:
        """Loss per word (directions, words), 0 where the target is `IGNORED`.

        One set of negatives per direction, or one for all, which then takes one product; without
        negatives the full softmax.
        """
        real = targets.clamp(min=0)
        if negatives is None:
            full_loss = cast(Callable[..., Tensor], _FullSoftmaxLoss.apply)
            losses = full_loss(hidden.flatten(0, 1), self.weight, self.bias, real.flatten())
        else:
            # one row of words per set: (sets, words)
            real = real.view(len(negatives), -1)
            losses = self.sampled_loss(
                hidden.reshape(*real.shape, -1),
                real,
                torch.stack([n.ids for n in negatives]),
                torch.stack([self._log_count(t, n) for t, n in zip(real, negatives, strict=True)]),
                torch.stack([self._log_count(n.ids, n) for n in negatives]),
            )
        return losses.view_as(targets).masked_fill(targets == IGNORED, 0.0)

    def _log_count(self, ids: Tensor, negatives: Negatives) -> Tensor:
        """By how much a logit is corrected; not at all where every word was certain."""
        if not negatives.num_tries:
            return torch.zeros_like(ids, dtype=torch.double)
        return log_expected_count(ids, negatives.num_tries, self.vocabulary_size)

    def sampled_loss(
        self,
        hidden: Tensor,
        targets: Tensor,
        sampled_ids: Tensor,
        true_log_count: Tensor,
        sampled_log_count: Tensor,
    ) -> Tensor:
        """Cross entropy of each target against the sampled words, accidental hits masked.

        All by set of negatives: hidden (sets, words, dim), targets and their counts (sets, words),
        sampled ids and their counts (sets, negatives).
        """
        sampled_loss = cast(Callable[..., Tensor], _SampledLoss.apply)
        return sampled_loss(
            hidden, self.weight, self.bias, targets, sampled_ids, true_log_count, sampled_log_count
        )


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
