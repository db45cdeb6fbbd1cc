"""Measure the bytes that a rank sends per step, and compare them with the plan (Linux).

`python benchmarks/traffic.py --config F --ranks 2,4,8 data.corpus=DIR` runs real launches in a
network namespace of its own, in which nothing else sends, and reads the counters of its loopback
interface. Two runs of different length are subtracted, so that the start does not count. Prints one
JSON line per number of ranks. What is not a gradient (reports of a step, heartbeats, TCP headers)
is included in `measured`, but not in `planned`.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bilm.commands.plan import make_plan  # noqa: E402
from bilm.training.config import Config, load_config  # noqa: E402
from bilm.training.traffic import traffic  # noqa: E402

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SET_INTERFACE_FLAGS, IS_UP = 0x8914, 0x1
SHORT, LONG = 3, 13  # steps


def main() -> int:
    """Measure each number of ranks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", required=True, help="configuration file or shipped name")
    parser.add_argument("--ranks", default="2", help="such as 2,4,8 (default: %(default)s)")
    parser.add_argument("override", nargs="*", help="section.key=value")
    arguments = parser.parse_intermixed_args()
    config = load_config(arguments.config, arguments.override)
    parameters = make_plan(config, None, None).parameters
    _enter_network_namespace()
    for world in map(int, arguments.ranks.split(",")):
        planned = traffic(config, parameters, world)
        short, long = (_sent_bytes(config, world, steps) for steps in (SHORT, LONG))
        measured = (long - short) / (LONG - SHORT) / world
        figures = {
            "ranks": world,
            "measured": round(measured),
            "planned": round(planned.payload),
            "ratio": round(measured / planned.payload, 4),
            "measured_sparse": round(measured - planned.dense),
            "planned_sparse": round(planned.sparse),
        }
        print(json.dumps(figures), flush=True)
    return 0


def _enter_network_namespace() -> None:
    """Move this process to a new network namespace and set up its loopback interface."""
    flags = CLONE_NEWNET | (0 if os.geteuid() == 0 else CLONE_NEWUSER)
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), "the system permits no new network namespace")
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SET_INTERFACE_FLAGS, struct.pack("16sh14x", b"lo", IS_UP))


def _sent_bytes(config: Config, world: int, steps: int) -> int:
    """Return the bytes that all ranks of a run of `steps` steps send."""
    before = _counter()
    with tempfile.TemporaryDirectory() as directory:
        section = config.train.model_copy(update={"output_dir": directory, "max_steps": steps})
        path = Path(directory) / "config.json"
        settings = config.model_copy(update={"train": section})
        path.write_text(settings.model_dump_json(exclude_none=True), encoding="utf-8")
        launcher = ["deepspeed", "--quiet", "--num_gpus", str(world)]
        subprocess.run(
            [*launcher, str(ROOT / "launch" / "pretrain.py"), "--config", str(path)],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"},
        )
    return _counter() - before


def _counter() -> int:
    """Return the bytes that were sent through the loopback interface."""
    for line in Path("/proc/net/dev").read_text(encoding="ascii").splitlines():
        name, _, values = line.partition(":")
        if name.strip() == "lo":
            return int(values.split()[8])
    raise OSError("/proc/net/dev does not list the loopback interface")


if __name__ == "__main__":
    raise SystemExit(main())
