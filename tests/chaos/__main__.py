"""Run all rows of docs/reliability.md: `python -m tests.chaos` (`make chaos`).

Runs the rows one after the other, stores their figures, and writes the page. The exit code is 1 if
any row failed. `--only 2 13` runs these rows and keeps the figures of the others.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.chaos.results import FIGURES_VARIABLE
from tests.conftest import ROOT

ROWS = {
    1: "test_kills",
    2: "test_lost_ranks",
    3: "test_signals",
    4: "test_write_faults",
    5: "test_flipped_bytes",
    6: "test_full_disk",
    7: "test_damaged_corpora",
    8: "test_fields",
    9: "test_nan",
    10: "test_rank_chain",
    11: "test_hostile_files",
    12: "test_fuzzing",
    13: "test_soak",
}
FIGURES = ROOT / "tests" / "chaos" / "figures.jsonl"
PAGE = ROOT / "docs" / "reliability.md"
MARK = "<!-- the table, by `make chaos` -->"


def main() -> int:
    """Run rows, store their figures, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--only", type=int, nargs="+", choices=sorted(ROWS), help="rows to run")
    parser.add_argument(
        "--write-only", action="store_true", help="write the page without running anything"
    )
    arguments = parser.parse_args()
    figures = _read(FIGURES)
    for number in [] if arguments.write_only else arguments.only or ROWS:
        print(f"row {number}: {ROWS[number]}", flush=True)
        figures[number] = _run(number)
        print(f"  {figures[number]['passed']} of {figures[number]['tried']} passed", flush=True)
        FIGURES.write_text("".join(json.dumps(figures[n]) + "\n" for n in sorted(figures)), "utf-8")
    PAGE.write_text(_page(PAGE.read_text("utf-8"), figures), "utf-8")
    failed = [n for n in ROWS if n not in figures or not _has_passed(figures[n])]
    for number in failed:
        reasons = figures.get(number, {}).get("failures", ["not run"])
        print(f"row {number} failed: {'; '.join(reasons)[:2000]}")
    return 1 if failed else 0


def _run(number: int) -> dict[str, Any]:
    """Run a row and return its figures."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "figures"
        test = ROOT / "tests" / "chaos" / f"{ROWS[number]}.py"
        command = [sys.executable, "-m", "pytest", "-m", "chaos", "-x", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, "--basetemp", f"{directory}/work", "--show-capture=stdout", str(test)],
            env={**os.environ, FIGURES_VARIABLE: str(file)},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        row = _read(file).get(number)
    if row is None:
        row = {"row": number, "title": ROWS[number], "seed": None, "tried": 0, "passed": 0}
        row |= {"worst": "", "failures": []}
    if done.returncode != 0:
        print(done.stdout[-3000:], flush=True)
        row["failures"] = row["failures"] or ["the test itself failed"]
    now = datetime.datetime.now(datetime.UTC)
    return {**row, "seconds": round(time.monotonic() - start), "date": now.date().isoformat()}


def _has_passed(figures: dict[str, Any]) -> bool:
    return figures["tried"] > 0 and not figures["failures"]


def _read(path: Path) -> dict[int, dict[str, Any]]:
    if not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return {line["row"]: line for line in lines}


def _page(before: str, figures: dict[int, dict[str, Any]]) -> str:
    """Return the page with the table of these figures."""
    names = ("torch", "deepspeed", "numpy", "safetensors", "h5py", "hypothesis")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    rows = [
        "| | test | cases | passed | worst case | seconds | date |",
        "|---|---|---|---|---|---|---|",
    ]
    for number in sorted(figures):
        f = figures[number]
        seed = "" if f["seed"] is None else f" (seed {f['seed']})"
        cells = (number, f["title"] + seed, f"{f['tried']:,}", f"{f['passed']:,}", f["worst"])
        rows.append("| " + " | ".join(map(str, (*cells, f["seconds"], f["date"]))) + " |")
    minutes = sum(f["seconds"] for f in figures.values()) / 60
    footer = (
        f"`make chaos` on {os.cpu_count()} cores ({platform.machine()}, Linux "
        f"{platform.release().split('-')[0]}), Python {platform.python_version()}, {versions}: "
        f"{minutes:.0f} minutes in total."
    )
    missing = ", ".join(str(number) for number in ROWS if number not in figures)
    if missing:
        footer += f" Not run yet: {missing}."
    head = before.split(MARK)[0]
    return f"{head}{MARK}\n\n" + "\n".join(rows) + f"\n\n{footer}\n"


if __name__ == "__main__":
    sys.exit(main())
