"""The exchange of dense gradients by PyTorch's `DistributedDataParallel`.

It reduces gradients in buckets while the backward pass still computes those of lower layers.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from bilm.model.language_model import BiLm

BUCKET_MB = 25


def replicate(model: BiLm, dtype: torch.dtype) -> DistributedDataParallel:
    """Return a module that runs `model` and averages its dense gradients over ranks.

    They are sent in `dtype`, float32 or bfloat16. The tables of a sampled softmax, whose gradients
    are sparse, are left out. Set `require_backward_grad_sync` to False before the forward pass of
    all but the last micro-batch of a step.
    """
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(
        model, [name for name, _ in sparse_tables(model)]
    )
    replicas = DistributedDataParallel(
        model, broadcast_buffers=False, gradient_as_bucket_view=True, bucket_cap_mb=BUCKET_MB
    )
    if dtype == torch.bfloat16:
        replicas.register_comm_hook(None, bf16_compress_hook)
    return replicas


def sparse_tables(model: BiLm) -> list[tuple[str, nn.Parameter]]:
    """Return the parameters with sparse gradients and their names."""
    softmax = model.softmax
    if softmax is None or model.config.softmax.kind != "sampled":
        return []
    names = ["bias"] if softmax.is_tied else ["weight", "bias"]
    return [(f"softmax.{name}", getattr(softmax, name)) for name in names]
