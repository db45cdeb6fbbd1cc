"""Compare the exchange of dense gradients with sums, on every rank of a launch by torchrun.

`python -m torch.distributed.run --nproc-per-node 3 -m tests.bilm.distributed.dense_ranks`
"""

from __future__ import annotations

import torch
import torch.distributed
from torch import Tensor, nn

from bilm.distributed.dense_exchange import DenseExchange
from bilm.errors import run_command


def build() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 7), nn.Tanh(), nn.Linear(7, 2))


def inputs_of(rank: int, part: int) -> Tensor:
    return torch.randn(3, 5, generator=torch.Generator().manual_seed(10 * rank + part))


def gradients(module: nn.Module, rank: int, num_parts: int) -> list[Tensor]:
    """Return the gradients of one rank, without an exchange."""
    module.zero_grad()
    for part in range(num_parts):
        module(inputs_of(rank, part)).square().sum().backward()
    return [weight.grad for weight in module.parameters() if weight.grad is not None]


def check(num_parts: int, bucket_bytes: int, dtype: torch.dtype) -> None:
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    module = build()
    exchange = DenseExchange(list(module.parameters()), dtype, bucket_bytes)
    for _ in range(2):  # steps
        module.zero_grad()
        for part in range(num_parts):
            if part == num_parts - 1:
                exchange.start()
            module(inputs_of(rank, part)).square().sum().backward()
        exchange.finish()
        of_ranks = [gradients(build(), other, num_parts) for other in range(world)]
        for weight, *all_grads in zip(module.parameters(), *of_ranks, strict=True):
            expected = torch.stack(all_grads).mean(dim=0)
            tolerance = 1e-6 if dtype == torch.float32 else 2e-2
            torch.testing.assert_close(weight.grad, expected, rtol=tolerance, atol=tolerance)


def main() -> None:
    torch.distributed.init_process_group("gloo")
    for parts in (1, 2):
        for size in (1, 250, 10**6):
            for sent in (torch.float32, torch.bfloat16):
                check(parts, size, sent)
    print("equal")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    run_command(main, tear_down=False)
