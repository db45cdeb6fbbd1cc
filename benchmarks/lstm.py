"""Compare the projected, clipped LSTM with PyTorch's LSTM: `python benchmarks/lstm.py`

Measures both directions, forward + backward and forward only, at the published size and two smaller
ones. Compared are: ours; `torch.nn.LSTM(proj_size=...)`, which cannot clip; an eager loop of
the same cell, the usual implementation. Prints one JSON line per figure.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from measure import Measured, elsewhere, figure
from torch import Tensor, nn

from bilm.distributed.process import keep_freed_memory
from bilm.kernels.lstm_types import LayerState
from bilm.model.config import LstmConfig
from bilm.model.projected_lstm import ProjectedLstm

SIZES = (
    (512, 4096, 128, 20),
    (128, 1024, 64, 20),
    (64, 256, 32, 20),
)  # projection_dim, dim, rows, time
DIRECTIONS = 2


class EagerLoop(nn.Module):
    """The cell as a plain module, with all products inside the loop over time steps."""

    def __init__(self, dim: int, projection_dim: int, clip: float) -> None:
        super().__init__()
        self.clip = clip
        self.input = nn.Linear(projection_dim, 4 * dim, bias=False)
        self.state = nn.Linear(projection_dim, 4 * dim)
        self.projection = nn.Linear(dim, projection_dim, bias=False)

    def forward(self, inputs: Tensor, cell: Tensor, hidden: Tensor) -> Tensor:
        outputs = []
        for x in inputs.unbind():
            i, j, f, o = (self.input(x) + self.state(hidden)).chunk(4, dim=1)
            cell = torch.sigmoid(f + 1.0) * cell + torch.sigmoid(i) * torch.tanh(j)
            cell = cell.clamp(-self.clip, self.clip)
            hidden = self.projection(torch.sigmoid(o) * torch.tanh(cell))
            hidden = hidden.clamp(-self.clip, self.clip)
            outputs.append(hidden)
        return torch.stack(outputs)


def operations(projection_dim: int, dim: int, rows: int, time: int) -> float:
    """Return the operations of the products of both directions, forward."""
    cell = 2 * projection_dim * 4 * dim + dim * projection_dim
    return 2.0 * DIRECTIONS * rows * time * cell


def runs(
    projection_dim: int, dim: int, rows: int, time: int
) -> dict[str, Callable[[Tensor], list[Tensor]]]:
    """Return each implementation as a function from inputs to the outputs of both directions."""
    config = LstmConfig(
        dim=dim,
        projection_dim=projection_dim,
        num_layers=1,
        cell_clip=3.0,
        projection_clip=3.0,
        skip_connections=False,
    )
    cell, hidden = torch.zeros(rows, dim), torch.zeros(rows, projection_dim)
    ours = [ProjectedLstm(config) for _ in range(DIRECTIONS)]
    torchs = [nn.LSTM(projection_dim, dim, proj_size=projection_dim) for _ in range(DIRECTIONS)]
    eager = [EagerLoop(dim, projection_dim, 3.0) for _ in range(DIRECTIONS)]
    return {
        "ours": lambda x: [lstm(x, LayerState(cell, hidden)).outputs for lstm in ours],
        "nn.LSTM": lambda x: [lstm(x)[0] for lstm in torchs],
        "eager loop": lambda x: [lstm(x, cell, hidden) for lstm in eager],
    }


def forward_backward(run: Callable[[Tensor], list[Tensor]], x: Tensor, grad: Tensor) -> None:
    """Run forward and backward, including the gradient of the input, which the encoder needs."""
    torch.autograd.backward(run(x.detach().requires_grad_()), [grad] * DIRECTIONS)


def forward(run: Callable[[Tensor], list[Tensor]], x: Tensor) -> None:
    """Run forward without gradients."""
    with torch.inference_mode():
        run(x)


def measure(size: tuple[int, int, int, int], rounds: int, threads: int) -> None:
    """Run all implementations in turn at one size, and print their figures."""
    projection_dim, dim, rows, time = size
    x, grad = torch.randn(time, rows, projection_dim), torch.randn(time, rows, projection_dim)
    contenders = runs(*size)
    both = {n: functools.partial(forward_backward, run, x, grad) for n, run in contenders.items()}
    one = {n: functools.partial(forward, run, x) for n, run in contenders.items()}
    for passes in (both, one):
        for name in passes.keys() - {"ours"}:
            passes[name] = elsewhere(passes[name])
    for name_of_pass, passes, factor in (("forward + backward", both, 3.0), ("forward", one, 1.0)):
        measured = Measured(passes, rounds)
        label = {"size": f"{projection_dim}/{dim}", "batch": f"{rows} x {time}"}
        label |= {"pass": name_of_pass}
        for name in contenders:
            figure(
                "lstm",
                **label,
                name=name,
                seconds=measured.median(name),
                share_of_peak=measured.share_of_peak(name, factor * operations(*size)),
                share_of_near_peak=measured.share_of_near_peak(name, factor * operations(*size)),
                threads=threads,
            )
        for other in ("nn.LSTM", "eager loop"):
            figure("lstm", **label, **measured.times_faster("ours", other))


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=5,
        help="rounds at the largest size; smaller sizes run more (default: %(default)s)",
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="threads (default: all cores)",
    )
    parser.add_argument(
        "--size",
        type=int,
        nargs="*",
        default=range(len(SIZES)),
        help="indices of sizes: 0 1 2 (default: all)",
    )
    arguments = parser.parse_args()
    keep_freed_memory()  # like a training process
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    for index in arguments.size:
        measure(SIZES[index], arguments.rounds * (1, 4, 12)[index], arguments.threads)


if __name__ == "__main__":
    main()
