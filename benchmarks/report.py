"""Run all benchmarks and write docs/performance.md with its plot: `python benchmarks/report.py`

The benchmarks run one after the other, each in its own process, and take about 20 minutes on two
cores. The figures are first written to benchmarks/figures.jsonl; `--write-only` writes the page
from this file without measuring.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

from report_page import Figure, write_page

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "benchmarks" / "figures.jsonl"
PAGE = ROOT / "docs" / "performance.md"

COMMANDS = [
    ["lstm.py"],
    ["encoder.py"],
    ["softmax.py"],
    ["step.py", "--steps", "7"],
    ["step.py", "--config", "configs/big.json", "--vocabulary", "793471", "--steps", "5"],
    ["loader.py"],
    ["inference.py"],
    ["scaling.py"],
]


def main() -> None:
    """Measure and write the page, or only write it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--write-only", action="store_true", help="write the page from benchmarks/figures.jsonl"
    )
    parser.add_argument(
        "--only",
        nargs="*",
        default=[],
        help="benchmarks to measure again, such as lstm; the figures of the others are kept",
    )
    parser.add_argument(
        "--encoder-text",
        help="raw text for encoder.py (default: random words spelled like English)",
    )
    parser.add_argument(
        "--inference-text",
        help="text for inference.py, raw lines or .csv (default: words drawn from Zipf's law)",
    )
    arguments = parser.parse_args()
    if not arguments.write_only:
        texts = {"encoder.py": arguments.encoder_text, "inference.py": arguments.inference_text}
        figures = run_all(texts, arguments.only)
        FIGURES.write_text("".join(json.dumps(f) + "\n" for f in figures), encoding="utf-8")
    write_page(read_figures(), PAGE)


def read_figures() -> list[Figure]:
    """Return the figures of the last run."""
    return [json.loads(line) for line in FIGURES.read_text(encoding="utf-8").splitlines()]


def run_all(texts: dict[str, str | None], only: list[str]) -> list[Figure]:
    """Run all benchmarks, or those named in `only`, and return the figures of all."""
    commands = [command for command in COMMANDS if not only or Path(command[0]).stem in only]
    figures: list[Figure] = [{"benchmark": "machine", **machine()}]
    if only:
        replaced = {Path(name).stem for name, *_ in commands} | {"machine"}
        figures += [figure for figure in read_figures() if figure["benchmark"] not in replaced]
    for name, *options in commands:
        if texts.get(name):
            options = [*options, "--text", str(texts[name])]
        figures += run(name, options)
    return figures


def run(name: str, options: list[str]) -> list[Figure]:
    """Run one benchmark; return its command line, with the names of files only, and its figures."""
    benchmark = Path(name).stem
    shown = [Path(option).name if "/" in option else option for option in options]
    command = " ".join(["python", f"benchmarks/{name}", *shown])
    print(command, flush=True)
    figures: list[Figure] = [{"benchmark": benchmark, "command": command}]
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / name), *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            figures.append({"benchmark": benchmark, **json.loads(line)})
            print("  " + line, flush=True)
    return figures


def machine() -> Figure:
    """Return the hardware, the versions and the date."""
    model = "unknown"
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next(
            (line.split(": ")[1] for line in lines if line.startswith("model name")), model
        )
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
        "deepspeed": importlib.metadata.version("deepspeed"),
        "date": datetime.date.today().isoformat(),
    }


if __name__ == "__main__":
    main()
