"""Run all benchmarks and write docs/performance.md with its plot: `python benchmarks/report.py`

The benchmarks run one after the other, each in its own process, and take 30 to 60 minutes on two
cores. The figures of each are written to benchmarks/figures.jsonl as soon as it has finished;
`--write-only` writes the page from this file without measuring.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from report_page import write_page
from report_table import Figure

from bilm.distributed.process import num_cores, processor_name

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "benchmarks" / "figures.jsonl"
PAGE = ROOT / "docs" / "performance.md"

COMMANDS = [
    ["lstm.py"],
    ["lstm.py", "--avx2", "--size", "0", "1"],
    ["encoder.py"],
    ["softmax.py"],
    ["step.py", "--steps", "7"],
    ["step.py", "--config", "configs/news.json", "--rows", "64", "--steps", "15"],
    ["step.py", "--config", "configs/big.json", "--vocabulary", "793471", "--steps", "5"],
    ["loader.py"],
    ["inference.py", "--sentences", "300", "--rounds", "3"],
    ["serving.py"],
    ["search.py"],
    ["build_corpus.py", "--words", "3000000"],
    ["scaling.py"],
    ["deepspeed_step.py"],
    ["contention.py", "--minutes", "6"],
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
    parser.add_argument(
        "--allennlp",
        metavar="PYTHON",
        help="interpreter that has allennlp, for inference.py (default: without AllenNLP)",
    )
    arguments = parser.parse_args()
    if not arguments.write_only:
        run_all(
            {
                "encoder.py": {"--text": arguments.encoder_text},
                "inference.py": {
                    "--text": arguments.inference_text,
                    "--allennlp": arguments.allennlp,
                },
            },
            arguments.only,
        )
    write_page(read_figures(), PAGE)


def read_figures() -> list[Figure]:
    """Return the figures of the last run."""
    return [json.loads(line) for line in FIGURES.read_text(encoding="utf-8").splitlines()]


def run_all(flags: dict[str, dict[str, str | None]], only: list[str]) -> None:
    """Run all benchmarks, or those named in `only`, and replace their figures one by one."""
    figures = [figure for figure in read_figures() if figure["benchmark"] != "machine"]
    done: set[str] = set()
    for name, *options in COMMANDS:
        benchmark = Path(name).stem
        if only and benchmark not in only:
            continue
        for flag, value in flags.get(name, {}).items():
            options += [] if value is None else [flag, value]
        new = run(name, options)
        if benchmark not in done:  # the first of its commands replaces the figures of all
            figures = [figure for figure in figures if figure["benchmark"] != benchmark]
        done.add(benchmark)
        figures += new
        lines = [{"benchmark": "machine", **machine()}, *figures]
        FIGURES.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def run(name: str, options: list[str]) -> list[Figure]:
    """Run one benchmark; return its command line, with the names of files only, and its figures."""
    benchmark = Path(name).stem
    shown = [Path(option).name if "/" in option else option for option in options]
    command = " ".join(["python", f"benchmarks/{name}", *shown])
    print(command, flush=True)
    used = {"command": command, "processor": machine()["processor"]}
    figures: list[Figure] = [{"benchmark": benchmark, **used}]
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
    return {
        "processor": processor_name(),
        "cores": num_cores(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
        "deepspeed": importlib.metadata.version("deepspeed"),
        "date": datetime.date.today().isoformat(),
    }


if __name__ == "__main__":
    main()
