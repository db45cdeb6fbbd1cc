"""The average over ranks of dense gradients, while the backward pass still computes others.

Gradients are sent in buckets, in the same order in every step and on all ranks. PyTorch's
`DistributedDataParallel` changes its buckets after the first step, and with them the order of sums,
so that with three or more ranks a resumed run could differ from an unbroken one in the last bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed
from torch import Tensor, nn

BUCKET_BYTES = 25_000_000


@dataclass
class _Bucket:
    """Gradients that are sent together."""

    weights: list[nn.Parameter]
    num_missing: int = 0  # weights whose gradient is not complete yet
    sent: Tensor = field(default_factory=lambda: torch.empty(0))
    work: torch.distributed.Work | None = None


class DenseExchange:
    """Sends gradients as soon as they are complete; call `start`, run backward, call `finish`."""

    def __init__(
        self,
        weights: Sequence[nn.Parameter],
        dtype: torch.dtype,
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        """Exchange the gradients of `weights`, in the order of the forward pass, in `dtype`."""
        self._dtype = dtype
        self._buckets: list[_Bucket] = []
        self._next: int | None = None  # the next bucket to send; None if nothing is exchanged
        size = 0
        for weight in reversed(weights):
            own_size = weight.numel() * weight.element_size()
            if not self._buckets or size + own_size > bucket_bytes:
                self._buckets.append(_Bucket([]))
                size = 0
            self._buckets[-1].weights.append(weight)
            size += own_size
        for bucket in self._buckets:
            for weight in bucket.weights:
                weight.register_post_accumulate_grad_hook(lambda _, own=bucket: self._note(own))

    def start(self) -> None:
        """Exchange the gradients of the next backward pass, added to those that exist."""
        self._next = 0
        for bucket in self._buckets:
            bucket.num_missing = len(bucket.weights)

    def _note(self, bucket: _Bucket) -> None:
        """Send all buckets that are complete, in order, so that ranks agree on it."""
        if self._next is None:
            return
        bucket.num_missing -= 1
        while self._next < len(self._buckets) and not self._buckets[self._next].num_missing:
            self._send(self._buckets[self._next])
            self._next += 1

    def _send(self, bucket: _Bucket) -> None:
        grads = [weight.grad.flatten() for weight in bucket.weights if weight.grad is not None]
        bucket.sent = torch.cat(grads).to(self._dtype)
        bucket.work = torch.distributed.all_reduce(bucket.sent, async_op=True)

    def finish(self) -> None:
        """Replace the gradients by their average over ranks."""
        if self._next != len(self._buckets):
            raise RuntimeError(f"only {self._next} of {len(self._buckets)} buckets are complete")
        world = torch.distributed.get_world_size()
        for bucket in self._buckets:
            assert bucket.work is not None
            bucket.work.wait()
            average = bucket.sent.float().div_(world)
            parts = average.split([weight.numel() for weight in bucket.weights])
            for weight, part in zip(bucket.weights, parts, strict=True):
                weight.grad = part.view_as(weight)
            bucket.work, bucket.sent = None, torch.empty(0)
        self._next = None
