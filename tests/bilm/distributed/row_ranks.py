"""Compare the exchange of rows with dense sums, on every rank of a launch by torchrun.

`python -m torch.distributed.run --nproc-per-node 3 -m tests.bilm.distributed.row_ranks`
"""

from __future__ import annotations

import torch
import torch.distributed
from torch import Tensor, nn

from bilm.distributed.row_exchange import RowExchange, RowPlan, plan_rows
from bilm.errors import run_command
from bilm.model.negatives import draw_negatives
from bilm.model.softmax import SampledTargets, sampled_targets

VOCABULARY, DIM, WORDS, NEGATIVES = 30, 3, 8, 6
Gradient = tuple[Tensor, Tensor]


def targets_of(rank: int, part: int, num_sets: int) -> SampledTargets:
    """Return targets that overlap with those of other ranks, and with the negatives."""
    generator = torch.Generator().manual_seed(10 * rank + part)
    targets = torch.randint(0, VOCABULARY // (1 + rank), (2, WORDS), generator=generator)
    negatives = [draw_negatives(NEGATIVES, VOCABULARY, (7, number)) for number in range(num_sets)]
    if rank == 2:  # no rows but those of the negatives
        targets = negatives[0].ids[:WORDS].repeat(2, 2)[:, :WORDS]
    return sampled_targets(targets, negatives, VOCABULARY)


def gradient_of(rank: int, part: int, ids: Tensor) -> Gradient:
    generator = torch.Generator().manual_seed(100 * rank + part)
    weight = torch.randn(len(ids), DIM, generator=generator)
    return weight, torch.randn(len(ids), 1, generator=generator)


def sparse(ids: Tensor, values: Tensor) -> Tensor:
    size = (VOCABULARY, values.shape[1])
    return torch.sparse_coo_tensor(ids.unsqueeze(0), values, size, check_invariants=True)


def gather(values: Tensor) -> Tensor:
    parts = [torch.empty_like(values) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(parts, values)
    return torch.stack(parts)


def check(num_parts: int, num_sets: int, dtype: torch.dtype) -> None:
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    tables = [nn.Parameter(torch.zeros(VOCABULARY, DIM)), nn.Parameter(torch.zeros(VOCABULARY, 1))]
    exchange = RowExchange(tables, dtype)
    own = [targets_of(rank, part, num_sets) for part in range(num_parts)]
    plan: RowPlan = plan_rows(own, num_parts * 2 * WORDS, gather)
    for _ in range(2):  # steps
        for table in tables:
            table.grad = None
        for part, sampled in enumerate(own):
            exchange.start(plan, is_last=part == num_parts - 1)
            ids = sampled.rows.ids
            torch.autograd.backward(
                tables, [sparse(ids, values) for values in gradient_of(rank, part, ids)]
            )
        exchange.finish()
    for number, table in enumerate(tables):
        expected = torch.zeros_like(table)
        for other in range(world):
            for part in range(num_parts):
                ids = targets_of(other, part, num_sets).rows.ids
                expected += sparse(ids, gradient_of(other, part, ids)[number]).to_dense() / world
        assert table.grad is not None
        assert table.grad.is_coalesced()
        tolerance = 1e-6 if dtype == torch.float32 else 3e-2
        torch.testing.assert_close(table.grad.to_dense(), expected, rtol=0, atol=tolerance)
        assert bool((gather(table.grad._values()) == table.grad._values()).all())


def main() -> None:
    torch.distributed.init_process_group("gloo")
    for parts in (1, 2):
        for sets in (1, 2):
            for sent in (torch.float32, torch.bfloat16):
                check(parts, sets, sent)
    print("equal")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    run_command(main, tear_down=False)
