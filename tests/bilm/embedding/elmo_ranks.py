"""Compare training in `DistributedDataParallel` with one process, on every rank of a launch.

`python -m torch.distributed.run --nproc-per-node 2 -m tests.bilm.embedding.elmo_ranks`
"""

from __future__ import annotations

import torch
import torch.distributed
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from bilm import Elmo
from bilm.errors import run_command
from tests.bilm.embedding.elmo_models import SENTENCES, tiny


class Tagger(nn.Module):
    """A linear layer on `Elmo`, whose loss is a sum over words."""

    def __init__(self, trainable: bool) -> None:
        super().__init__()
        self.elmo = Elmo(tiny(), num_outputs=2, dropout=0.0, trainable=trainable)
        torch.manual_seed(0)
        self.classes = nn.Linear(2 * self.elmo.dim, 3)

    def forward(self, sentences: list[list[str]]) -> Tensor:
        outputs, mask = self.elmo(sentences)
        scores = self.classes(torch.cat(outputs, dim=-1))  # (sentences, words, classes)
        return scores.logsumexp(dim=-1)[mask].sum() + self.elmo.penalty()


def train(tagger: nn.Module, batches: list[list[list[str]]]) -> None:
    """Do two steps, each with the mean of the gradients of all batches."""
    optimizer = torch.optim.SGD(tagger.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        for batch in batches:
            (tagger(batch) / len(batches)).backward()
        optimizer.step()


def check(trainable: bool) -> None:
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    shares = [SENTENCES[other::world] for other in range(world)]
    alone = Tagger(trainable)
    train(alone, shares)
    parallel = DistributedDataParallel(Tagger(trainable))
    train(parallel, [shares[rank]])
    expected = dict(alone.named_parameters())
    for name, weight in parallel.module.named_parameters():
        torch.testing.assert_close(weight, expected[name], atol=1e-6, rtol=1e-5, msg=name)


def main() -> None:
    torch.distributed.init_process_group("gloo")
    for value in (False, True):
        check(value)
    print("equal")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    run_command(main, tear_down=False)
