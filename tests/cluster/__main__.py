"""Run launchers and faults on a simulated cluster: `python -m tests.cluster` (`make cluster`).

Runs the scenarios one after the other, stores their figures in tests/cluster/figures.jsonl, and
writes the table of docs/cluster.md. The exit code is 1 if a scenario failed, and 2 if this machine
cannot simulate others. `--only srun,torchrun` runs these and keeps the figures of the others.
"""

from __future__ import annotations

import argparse
import datetime
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from tests.cluster import batch, elastic, embedding, faults, launchers, pdsh
from tests.cluster.jobs import Bed
from tests.cluster.machines import PROGRAMS, missing
from tests.cluster.page import read_figures, write_figures, write_page
from tests.cluster.services import AlreadyUp, cluster

Scenario = Callable[[Bed], tuple[str, str]]
SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for module in (launchers, pdsh, faults, batch, elastic, embedding)
    for scenario in module.SCENARIOS
}


def main() -> int:
    """Run scenarios, store their figures, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("--only", metavar="NAME[,NAME]", help=f"of {', '.join(SCENARIOS)}")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="keep logs and runs there")
    parser.add_argument(
        "--write-only", action="store_true", help="write the table without running anything"
    )
    arguments = parser.parse_args()
    names = list(SCENARIOS) if arguments.only is None else arguments.only.split(",")
    unknown = [name for name in names if name not in SCENARIOS]
    if unknown:
        parser.error(f"--only: unknown scenario {unknown[0]!r}; use {', '.join(SCENARIOS)}")
    lacks = missing(tuple(PROGRAMS))
    if lacks and not arguments.write_only:
        print(f"error: this machine lacks {', '.join(lacks)}. {_REMEDY}", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        if not arguments.write_only:
            _run_all(names, arguments.keep)
    except (AlreadyUp, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the machines have been removed", file=sys.stderr)
        return 130
    figures = read_figures()
    write_page([figures[name] for name in SCENARIOS if name in figures])
    failed = [name for name in names if not figures.get(name, {}).get("passed", False)]
    for name in failed:
        print(f"{name} failed: {figures.get(name, {}).get('what', 'not run')[:4000]}")
    return 1 if failed else 0


_REMEDY = (
    "Run as root, and install the packages; on Debian 12: apt-get install --no-install-recommends "
    "iproute2 nftables openssh-server pdsh slurm-wlm munge procps"
)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _run_all(names: list[str], keep: Path | None) -> None:
    with cluster() as machines, tempfile.TemporaryDirectory(prefix="bilm-runs-") as directory:
        work = Path(directory) if keep is None else keep.resolve()
        print("training on one machine, for comparison", flush=True)
        bed = Bed(machines, work)
        bed.train_reference()
        for count, name in enumerate(names, 1):
            row = _run(bed, name)
            result = "passed" if row["passed"] else "FAILED"
            print(
                f"{count}/{len(names)} {name}: {result} in {row['seconds']} s: "
                f"{row['what'].splitlines()[0]}; {row['figure']}",
                flush=True,
            )
            write_figures(read_figures() | {name: row})


def _run(bed: Bed, name: str) -> dict[str, Any]:
    """Run a scenario and return its row."""
    start = time.monotonic()
    what, figure, is_passed = "", "", True
    try:
        try:
            what, figure = SCENARIOS[name](bed)
            seconds = time.monotonic() - start
        finally:
            left = bed.clean_up()
        assert not left, f"processes were left: {left}"
    except Exception as error:
        what, is_passed = f"{type(error).__name__}: {error}", False
        seconds = time.monotonic() - start
    return {
        "name": name,
        "scenario": " ".join((SCENARIOS[name].__doc__ or name).split()),
        "what": what,
        "seconds": round(seconds),
        "figure": figure,
        "passed": is_passed,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


if __name__ == "__main__":
    sys.exit(main())
