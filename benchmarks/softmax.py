"""Measure the sampled softmax with its optimizer step: `python benchmarks/softmax.py`

Computes loss, gradients and Adagrad for two directions of 2,560 words each, with 512 dimensions and
8,192 negatives per direction, at vocabularies of 50,000 and 793,471 words. The implementations are:
ours; ours with one set of negatives for both directions; dense gradients with PyTorch's Adagrad;
PyTorch's sparse embedding gradients. Prints one JSON line per figure, including the memory that
each implementation needs in addition to weights and optimizer state.
"""

from __future__ import annotations

import argparse
import functools
import gc
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from measure import Measured, elsewhere, figure, peak_memory_of
from rounds import Bounds, add_bounds
from torch import Tensor
from torch.nn import functional as F

from bilm.distributed.process import keep_freed_memory, num_cores
from bilm.model.negatives import draw_negatives, log_expected_count
from bilm.model.softmax import VocabularySoftmax
from bilm.training.config import OptimizerConfig
from bilm.training.optimizers import build_optimizer

DIRECTIONS, WORDS, DIM, NEGATIVES = 2, 2560, 512, 8192
SIZES = (50_000, 793_471)


def zipf_targets(vocabulary_size: int, seed: int) -> Tensor:
    """Draw targets (directions, words) with the frequencies of words in a text."""
    uniform = np.random.default_rng(seed).random((DIRECTIONS, WORDS))
    ids = np.exp(uniform * np.log(vocabulary_size + 1.0)).astype(np.int64) - 1
    return torch.from_numpy(ids.clip(max=vocabulary_size - 1))


class Ours:
    """bilm's softmax and row-wise Adagrad, with new negatives at every step."""

    def __init__(self, vocabulary_size: int, num_sets: int) -> None:
        self.softmax = VocabularySoftmax(vocabulary_size, DIM)
        self.optimizer = build_optimizer(OptimizerConfig(), self.softmax.parameters())
        self.num_sets, self.step = num_sets, 0

    def __call__(self, hidden: Tensor, targets: Tensor) -> None:
        self.step += 1
        size = self.softmax.vocabulary_size
        sets = [draw_negatives(NEGATIVES, size, (self.step, s)) for s in range(self.num_sets)]
        leaf = hidden.detach().requires_grad_()
        self.softmax(leaf, targets, sets).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class TorchSoftmax:
    """The same loss in PyTorch: `F.embedding`, cross entropy and `torch.optim.Adagrad`."""

    def __init__(self, vocabulary_size: int, sparse: bool) -> None:
        self.softmax = VocabularySoftmax(vocabulary_size, DIM)
        self.sparse, self.step = sparse, 0
        self.optimizer = torch.optim.Adagrad(
            self.softmax.parameters(), lr=0.2, initial_accumulator_value=1.0, eps=0.0
        )

    def __call__(self, hidden: Tensor, targets: Tensor) -> None:
        self.step += 1
        leaf = hidden.detach().requires_grad_()
        losses = [self._loss(leaf[d], targets[d], d) for d in range(DIRECTIONS)]
        torch.stack(losses).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def _loss(self, hidden: Tensor, targets: Tensor, direction: int) -> Tensor:
        size = self.softmax.vocabulary_size
        ids, num_tries = draw_negatives(NEGATIVES, size, (self.step, direction))
        both = torch.cat([ids, targets])
        weight = F.embedding(both, self.softmax.weight, sparse=self.sparse)
        bias = F.embedding(both, self.softmax.bias, sparse=self.sparse).squeeze(1)
        bias = bias - log_expected_count(both, num_tries, size).float()
        sampled = hidden @ weight[:NEGATIVES].t() + bias[:NEGATIVES]
        sampled = sampled.masked_fill(ids == targets.unsqueeze(1), -torch.inf)
        true = (hidden * weight[NEGATIVES:]).sum(dim=1) + bias[NEGATIVES:]
        logits = torch.cat([true.unsqueeze(1), sampled], dim=1)
        return F.cross_entropy(logits, torch.zeros_like(targets))


CONTENDERS: dict[str, Callable[[int], Callable[[Tensor, Tensor], None]]] = {
    "ours": lambda size: Ours(size, DIRECTIONS),
    "ours, shared negatives": lambda size: Ours(size, 1),
    "dense gradients": lambda size: TorchSoftmax(size, sparse=False),
    "torch's sparse gradients": lambda size: TorchSoftmax(size, sparse=True),
}


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_bounds(parser)
    parser.add_argument(
        "--threads",
        type=int,
        default=num_cores(),
        help="threads (default: all cores)",
    )
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    hidden = torch.randn(DIRECTIONS, WORDS, DIM)
    operations = 3.0 * 2 * DIRECTIONS * WORDS * (NEGATIVES + 1) * DIM
    # All sizes and implementations run in turn, so that sizes can be compared too.
    steps: dict[str, Callable[[], None]] = {}
    for size in SIZES:
        targets = zipf_targets(size, seed=1)
        for name, build in CONTENDERS.items():
            run = build(size)
            run(hidden, targets)
            label = {"name": name, "vocabulary": size}
            extra = peak_memory_of(lambda r=run, t=targets: r(hidden, t))
            figure("softmax", **label, extra_memory_gb=extra / 1e9)
            step = functools.partial(run, hidden, targets)
            steps[f"{name} at {size}"] = step if name.startswith("ours") else elsewhere(step)
            gc.collect()
    keep_freed_memory()  # like a training process
    small, large = (f"ours at {size}" for size in SIZES)
    pairs = [(f"ours at {n}", f"{c} at {n}") for n in SIZES for c in list(CONTENDERS)[2:]]
    pairs.append((small, large))
    measured = Measured(steps, Bounds(arguments.rounds, arguments.max_spread), pairs)
    for size in SIZES:
        for name in CONTENDERS:
            key = f"{name} at {size}"
            figure(
                "softmax",
                name=name,
                vocabulary=size,
                seconds=measured.median(key),
                share_of_peak=measured.share_of_peak(key, operations),
                share_of_near_peak=measured.share_of_near_peak(key, operations),
                threads=arguments.threads,
            )
    for pair in pairs:
        figure("softmax", **measured.times_faster(*pair))


if __name__ == "__main__":
    main()
