"""Prove that bilm works on the GPUs of this machine: `bilm gpu-check`

Compares results with the original implementation, kernels with their references, one GPU with all
GPUs, and a resumed run with one that was not stopped; measures products, training steps, launches,
synchronizations and embedding. Takes less than 15 minutes. In a checkout, `make gpu` does the same
and writes the table into docs/gpu.md.

Exit codes: 0 if every check that ran has passed; 1 if one has failed; 2 if the device is missing.
"""

from __future__ import annotations

import argparse
import logging
import os
import platform
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import bilm
from bilm.distributed.process import configure_process
from bilm.errors import ConfigError, OutputError, run_command
from bilm.extras import TRAINING, require

if TYPE_CHECKING:
    from bilm.commands.gpu_checks.rows import Check, Setting

BEGIN, END = "<!-- table of gpu-check -->", "<!-- end of table -->"


@dataclass(frozen=True)
class Options:
    """The command line."""

    device: str
    output: Path
    golden: Path | None
    quick: bool


def main() -> int:
    """Run all checks, print the table and write it."""
    options = _parse()
    require("gpu-check", *TRAINING)
    if options.golden is not None and not any(options.golden.glob("*.npz")):
        raise ConfigError(f"--golden is {options.golden}, which has no .npz files")
    if not options.output.absolute().parent.is_dir():
        raise OutputError(f"--output is {options.output}, but its directory does not exist")
    configure_process()
    logging.getLogger("bilm.training").setLevel(logging.ERROR)  # the runs have no held-out text
    if options.device == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"
    from bilm.commands.gpu_checks.rows import Setting, format_table, run_checks
    from bilm.model.devices import choose_device

    try:
        device = choose_device(options.device)
    except ConfigError as error:
        raise ConfigError(f"{error} For a test without a GPU, use --device cpu --quick.") from None
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        setting = Setting(device, options.quick, Path(directory), options.golden)
        for row in run_checks(all_checks(options.quick), setting):
            rows.append(row)
            print(f"{row.result:<8}{row.name}: {row.figure} (limit {row.limit})", flush=True)
    text = f"{_description(setting)}\n\n{format_table(rows)}\n"
    print(f"\n{text}", flush=True)
    write_page(options.output, text)
    return int(any(row.result == "failed" for row in rows))


def all_checks(is_quick: bool) -> Iterator[tuple[str, Check]]:
    """Yield the name and the function of each check; quick ones have one size only."""
    from bilm.commands.gpu_checks import numbers, runs, speed
    from bilm.training.gpus import PRECISIONS

    sizes = ("small",) if is_quick else ("small", "big")
    for precision in PRECISIONS:
        yield f"parity, {precision}", partial(numbers.parity, precision=precision)
    for name in numbers.KERNELS:
        yield f"kernel, {name}", partial(numbers.kernel, name=name)
    yield "1 and N ranks", runs.equal_ranks
    yield "resume", runs.resumed_run
    for precision in PRECISIONS:
        yield f"product peak, {precision}", partial(speed.product_peak, precision=precision)
    for size in sizes:
        for precision in PRECISIONS:
            step = partial(speed.step_time, name=size, precision=precision)
            yield f"step, {size}, {precision}", step
        yield f"launches, {size}", partial(speed.launches, name=size)
        for precision in PRECISIONS:
            embedding = partial(speed.embedding, name=size, precision=precision)
            yield f"embedding, {size}, {precision}", embedding


def write_page(path: Path, text: str) -> None:
    """Write the table; in a page with markers, replace what is between them."""
    from bilm.files.writing import write_text

    page = path.read_text(encoding="utf-8") if path.is_file() else ""
    pattern = re.compile(f"{re.escape(BEGIN)}\n.*?{re.escape(END)}", re.DOTALL)
    if pattern.search(page):
        text = pattern.sub(lambda _: f"{BEGIN}\n{text}{END}", page, count=1)
    write_text(path, text)


def _description(setting: Setting) -> str:
    import torch

    device, sizes = setting.device, "tiny sizes" if setting.is_quick else "full sizes"
    name = str(device)
    if device.type == "cuda":
        name = f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(device)}"
        name += f", CUDA {torch.version.cuda}"
    return (
        f"Device: {name}; {sizes}; bilm {bilm.__version__}, PyTorch {torch.__version__}, "
        f"Python {platform.python_version()}."
    )


def _parse() -> Options:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda", help="device to check (default: cuda)")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("gpu-check.md"),
        help="file for the table (default: gpu-check.md); a table between the markers of "
        "docs/gpu.md is replaced",
    )
    parser.add_argument(
        "--golden",
        type=Path,
        help="directory with the .npz files of the original implementation (tests/golden in a "
        "checkout); without it, the reference of parity is float64 on the CPU",
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes, to test the command itself"
    )
    arguments = parser.parse_args()
    return Options(arguments.device, arguments.output, arguments.golden, arguments.quick)


if __name__ == "__main__":
    run_command(main)
