"""Compare the projected, clipped LSTM with PyTorch's LSTM: `python benchmarks/lstm.py`

Measures both directions, forward + backward and forward only, at the published size and two smaller
ones. Compared are: ours; `torch.nn.LSTM(proj_size=...)`, which cannot clip; an eager loop of
the same cell, the usual implementation; and, if the processor has instructions for it, ours in
bfloat16. With `--avx2`, all of them use AVX2 although the processor may have wider vectors. Prints
one JSON line per figure.
"""

from __future__ import annotations

import argparse
import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from measure import Measured, elsewhere, figure
from rounds import Bounds, add_bounds
from torch import Tensor, nn

from bilm.distributed.process import keep_freed_memory, num_cores
from bilm.kernels.lstm import lstm_directions
from bilm.kernels.lstm_packing import supports
from bilm.kernels.lstm_types import LayerState
from bilm.model.config import LstmConfig
from bilm.model.precision import Precision, precision_context
from bilm.model.projected_lstm import ProjectedLstm

SIZES = (
    (512, 4096, 128, 20),
    (128, 1024, 64, 20),
    (64, 256, 32, 20),
)  # projection_dim, dim, rows, time
DIRECTIONS = 2
IN_BFLOAT16 = "ours, bfloat16"
# Settings of MKL, PyTorch and our C code, which they read when they are loaded.
AVX2 = {
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "BILM_C_ARCH": "x86-64-v3",
}


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


def is_in_avx2() -> bool:
    """Return whether this process has the settings of `--avx2`."""
    return all(os.environ.get(name) == value for name, value in AVX2.items())


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
    state = LayerState(
        torch.zeros(DIRECTIONS, rows, dim), torch.zeros(DIRECTIONS, rows, projection_dim)
    )
    ours = [ProjectedLstm(config) for _ in range(DIRECTIONS)]
    torchs = [nn.LSTM(projection_dim, dim, proj_size=projection_dim) for _ in range(DIRECTIONS)]
    eager = [EagerLoop(dim, projection_dim, 3.0) for _ in range(DIRECTIONS)]

    def run_ours(x: Tensor, precision: Precision = "float32") -> list[Tensor]:
        with precision_context(x.device, precision):
            weights = [lstm.weights for lstm in ours]
            results = lstm_directions([x] * DIRECTIONS, weights, ours[0].clips, state)
        return [result.outputs for result in results]

    implementations: dict[str, Callable[[Tensor], list[Tensor]]] = {
        "ours": run_ours,
        "nn.LSTM": lambda x: [lstm(x)[0] for lstm in torchs],
        "eager loop": lambda x: [lstm(x, cell, hidden) for lstm in eager],
    }
    if supports(torch.float32, torch.bfloat16):
        implementations[IN_BFLOAT16] = functools.partial(run_ours, precision="bfloat16")
    return implementations


def forward_backward(run: Callable[[Tensor], list[Tensor]], x: Tensor, grad: Tensor) -> None:
    """Run forward and backward, including the gradient of the input, which the encoder needs."""
    torch.autograd.backward(run(x.detach().requires_grad_()), [grad] * DIRECTIONS)


def forward(run: Callable[[Tensor], list[Tensor]], x: Tensor) -> None:
    """Run forward without gradients."""
    with torch.inference_mode():
        run(x)


def measure(size: tuple[int, int, int, int], bounds: Bounds, threads: int) -> None:
    """Run all implementations in turn at one size, and print their figures."""
    projection_dim, dim, rows, time = size
    x, grad = torch.randn(time, rows, projection_dim), torch.randn(time, rows, projection_dim)
    contenders = runs(*size)
    both = {n: functools.partial(forward_backward, run, x, grad) for n, run in contenders.items()}
    one = {n: functools.partial(forward, run, x) for n, run in contenders.items()}
    for passes in (both, one):
        for name in passes.keys() - {"ours", IN_BFLOAT16}:
            passes[name] = elsewhere(passes[name])
    for name_of_pass, passes, factor in (("forward + backward", both, 3.0), ("forward", one, 1.0)):
        measured = Measured(passes, bounds)
        suffix = ", AVX2" if is_in_avx2() else ""
        label = {"size": f"{projection_dim}/{dim}{suffix}", "batch": f"{rows} x {time}"}
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
        if IN_BFLOAT16 in contenders:
            figure("lstm", **label, **measured.times_faster(IN_BFLOAT16, "ours"))


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
    parser.add_argument(
        "--size",
        type=int,
        nargs="*",
        default=range(len(SIZES)),
        help="indices of sizes: 0 1 2 (default: all)",
    )
    parser.add_argument("--avx2", action="store_true", help="use AVX2 in all implementations")
    arguments = parser.parse_args()
    if arguments.avx2 and not is_in_avx2():
        command = [sys.executable, *sys.argv]
        sys.exit(subprocess.run(command, env={**os.environ, **AVX2}).returncode)
    keep_freed_memory()  # like a training process
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    for index in arguments.size:
        rounds = arguments.rounds * (1, 3, 6)[index]  # smaller sizes are faster and noisier
        measure(SIZES[index], Bounds(rounds, arguments.max_spread), arguments.threads)


if __name__ == "__main__":
    main()
