"""Run all benchmarks and write docs/performance.md with its plot: `python benchmarks/report.py`

Each benchmark runs in a process of its own, one after the other; about 20 minutes on two cores. The
figures go to benchmarks/figures.jsonl first, so that `--write-only` makes the page again.
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
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "benchmarks" / "figures.jsonl"
PAGE, PLOT = ROOT / "docs" / "performance.md", ROOT / "docs" / "performance.png"
BIG = ("--config", "configs/big.json", "--vocabulary", "793471", "--steps", "5")
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("lstm.py",),
    ("encoder.py",),
    ("softmax.py",),
    ("step.py", "--steps", "7"),
    ("step.py", *BIG),
    ("loader.py",),
    ("inference.py",),
    ("scaling.py",),
)
Figure = dict[str, Any]
NOTES = """
## Notes

- What is not a product in a step: the LSTM's cell in backward and forward (memory-bound), the
  random numbers of dropout, look-up of characters, norm and optimiser. The products themselves run
  below the square one's rate where 128 rows meet a weight of 16,384 columns.
- A training process keeps freed memory (`bilm/distributed/process.py`); so do the benchmarks, except
  while a contender of others has its turn. Any `MALLOC_` variable of your own decides otherwise.
- Without a C compiler, or with `BILM_NATIVE=0`, everything runs in plain torch, with the same
  numbers; on CUDA too. No GPU was at hand: nothing on this page says anything about one.
- For orientation: on two such cores the original TensorFlow program takes 17 s for one step of 128
  x 20 words at the size of configs/small.json with 50,000 words, and 63 s at that of
  configs/big.json.
"""


def run_all(texts: dict[str, str | None], only: list[str]) -> None:
    """Run every benchmark, or some again; a line of their output is a figure."""
    figures: list[Figure] = [{"benchmark": "machine", **machine()}]
    wanted = [command for command in COMMANDS if not only or Path(command[0]).stem in only]
    if only:
        again = {Path(name).stem for name, *_ in wanted} | {"machine"}
        kept = [json.loads(line) for line in FIGURES.read_text(encoding="utf-8").splitlines()]
        figures += [figure for figure in kept if figure["benchmark"] not in again]
    for name, *options in wanted:
        if texts.get(name):
            options = [*options, "--text", str(texts[name])]
        command = [sys.executable, str(ROOT / "benchmarks" / name), *options]
        shown = [Path(option).name if "/" in option else option for option in options]
        told = " ".join(["python", f"benchmarks/{name}", *shown])
        print(told, flush=True)
        figures.append({"benchmark": Path(name).stem, "command": told})
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
        for line in done.stdout.splitlines():
            if line.startswith("{"):
                figures.append({"benchmark": Path(name).stem, **json.loads(line)})
                print("  " + line, flush=True)
    FIGURES.write_text("".join(json.dumps(f) + "\n" for f in figures), encoding="utf-8")


def machine() -> Figure:
    """Where and with what this was measured."""
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


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows), ""]


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 0.1 else f"{1000 * value:.3g} ms"


def _times(figure: Figure) -> str:
    low, high = figure["spread"]
    return f"{figure['times']:.2f} ({low:.2f} to {high:.2f})"


def lstm_part(figures: list[Figure]) -> list[str]:
    """The LSTM's tables."""
    timed = [f for f in figures if "seconds" in f]
    ratios = [f for f in figures if "times" in f]
    lines = ["## LSTM", "", "One projected layer, both directions.", ""]
    lines += table(
        ("size", "batch", "pass", "", "median", "share of peak", "of near peak"),
        (
            (
                f["size"],
                f["batch"],
                f["pass"],
                f["name"],
                _seconds(f["seconds"]),
                f["share_of_peak"],
                f["share_of_near_peak"],
            )
            for f in timed
        ),
    )
    return lines + table(
        ("size", "pass", "ours against", "times as fast (spread)"),
        ((f["size"], f["pass"], f["than"], _times(f)) for f in ratios),
    )


def encoder_part(figures: list[Figure]) -> list[str]:
    """The encoder's tables."""
    lines = ["## Token encoder", "", "The published one, 128 x 20 words of both directions, ", ""]
    lines[-2] += "forward + backward."
    timed = [f for f in figures if "seconds" in f]
    lines += table(
        ("", "median", "words encoded"),
        (
            (
                f["name"],
                _seconds(f["seconds"]),
                f["tokens"] if "every token" in f["name"] else f["distinct_words"],
            )
            for f in timed
        ),
    )
    lines += table(
        ("ours against", "times as fast (spread)"),
        ((f["than"], _times(f)) for f in figures if "times" in f),
    )
    return lines + table(
        ("difference from float64", "vectors", "gradients of filters alone", "all gradients"),
        (
            (
                f["name"],
                f"{f['forward_from_float64']:.1e}",
                f"{f['filter_gradients_from_float64']:.1e}",
                f"{f['all_gradients_from_float64']:.1e}",
            )
            for f in figures
            if "forward_from_float64" in f
        ),
    )


def softmax_part(figures: list[Figure]) -> list[str]:
    """The softmax's tables."""
    memory = {
        (f["name"], f["vocabulary"]): f["extra_memory_gb"]
        for f in figures
        if "extra_memory_gb" in f
    }
    lines = ["## Sampled softmax with its optimiser step", ""]
    lines += ["2 x 2,560 targets, 512 wide, 8,192 negatives a direction.", ""]
    lines += table(
        ("", "vocabulary", "median", "share of peak", "of near peak", "extra memory"),
        (
            (
                f["name"],
                f"{f['vocabulary']:,}",
                _seconds(f["seconds"]),
                f["share_of_peak"],
                f["share_of_near_peak"],
                f"{memory[f['name'], f['vocabulary']]:.2f} GB",
            )
            for f in figures
            if "seconds" in f
        ),
    )
    return lines + table(
        ("", "against", "times as fast (spread)"),
        ((f["name"], f["than"], _times(f)) for f in figures if "times" in f),
    )


def step_part(figures: list[Figure]) -> list[str]:
    """Where a whole step's time goes."""
    lines = ["## The whole step", ""]
    lines += ["One process; the share of peak counts only the products that a perfect "]
    lines[-1] += (
        "implementation would need (LSTMs, softmax, highways and projection of distinct words)."
    )
    lines.append("")
    parts = [f for f in figures if "part" in f]
    totals = {f["config"]: f["seconds"] for f in parts if f["part"] == "step"}
    lines += table(
        ("config", "vocabulary", "batch", "part", "median", "of the step"),
        (
            (
                f["config"],
                f"{f['vocabulary']:,}",
                f["batch"],
                f["part"],
                _seconds(f["seconds"]),
                f"{100 * f['seconds'] / totals[f['config']]:.1f} %",
            )
            for f in parts
        ),
    )
    return lines + table(
        ("config", "words/s", "distinct words", "peak", "share of peak", "of near peak", "memory"),
        (
            (
                f["config"],
                round(f["words_per_second"]),
                f["distinct_words"],
                f"{f['peak_gflops']:.0f} GFLOP/s",
                f"{f['share_of_peak']:.2f}",
                f"{f['share_of_near_peak']:.2f}",
                f"{f['memory_gib']:.1f} GiB",
            )
            for f in figures
            if "share_of_peak" in f
        ),
    )


def scaling_part(figures: list[Figure]) -> list[str]:
    """Step time against each size, with the plot; ranks."""
    lines = ["## Scaling", "", "The model of configs/small.json, 64 rows x 20, 50,000 words, "]
    lines[-1] += "one size changed at a time; the projection is an eighth of the hidden size."
    lines += ["", f"![words a second and step time against each size]({PLOT.name})", ""]
    lines += table(
        ("size", "value", "step", "of which LSTMs", "words/s"),
        (
            (
                f["axis"],
                f"{f['value']:,}",
                _seconds(f["seconds"]) if "seconds" in f else "",
                _seconds(f["lstm_seconds"]) if "lstm_seconds" in f else "",
                f"{f['words_per_second']:,.0f}",
            )
            for f in figures
            if "axis" in f
        ),
    )
    return lines + table(
        ("", "against", "times as fast (spread)", "of which the product peak itself gains"),
        (
            (f["name"], f["than"], _times(f), f"{f['peak_times']:.2f}")
            for f in figures
            if "times" in f
        ),
    )


def other_part(title: str, figures: list[Figure]) -> list[str]:
    """A benchmark's lines as they are."""
    lines = [f"## {title}", "", "```json"]
    for figure in figures:
        lines.append(json.dumps({k: v for k, v in figure.items() if k != "benchmark"}))
    return [*lines, "```", ""]


def plot(figures: list[Figure]) -> None:
    """Words a second against each size; and step time, with the straight line through it."""
    import matplotlib
    import numpy as np

    matplotlib.use("Agg")
    from matplotlib import pyplot

    by_axis: dict[str, list[Figure]] = {}
    for figure in figures:
        if "axis" in figure:
            by_axis.setdefault(figure["axis"], []).append(figure)
    page, (rates, times) = pyplot.subplots(2, 4, figsize=(16, 7.5), layout="constrained")
    for name, cell in zip(("hidden", "rows", "vocabulary", "ranks"), rates, strict=True):
        x = [f["value"] for f in by_axis[name]]
        cell.plot(x, [f["words_per_second"] for f in by_axis[name]], "o-")
        cell.set(xlabel=name, ylabel="words/s")
        if name == "vocabulary":
            cell.set_xscale("log")
        if name == "ranks":
            cell.set_xticks(x)
    for name, label, key, cell in (
        ("hidden", "hidden size squared, millions", "lstm_seconds", times[0]),
        ("rows", "rows of the batch", "seconds", times[1]),
        ("unroll", "unrolled steps", "seconds", times[2]),
    ):
        points = by_axis[name]
        x = [f["value"] ** 2 / 1e6 if name == "hidden" else f["value"] for f in points]
        y = [f[key] for f in points]
        slope, start = np.polyfit(x, y, 1)
        cell.plot([0, x[-1]], [start, start + slope * x[-1]], "--", color="grey", label="a line")
        cell.plot(x, y, "o", label="measured")
        cell.set(xlabel=label, xlim=(0, None))
        cell.set_ylabel("LSTMs, seconds" if name == "hidden" else "step, seconds")
        cell.legend(loc="lower right")
    for name in ("vocabulary", "corpus"):
        points = by_axis[name]
        label = "words of the vocabulary" if name == "vocabulary" else "words of the corpus"
        values = [f["value"] for f in points]
        times[3].semilogx(values, [f["seconds"] for f in points], "o-", label=label)
    times[3].set(xlabel="words", ylabel="step, seconds")
    times[3].legend(loc="lower right")
    for cell in (*rates, *times):
        cell.grid(True, alpha=0.3)
        cell.set_ylim(0, 1.08 * max(max(line.get_ydata()) for line in cell.lines))
    page.savefig(PLOT, dpi=100)


def write_page() -> None:
    """docs/performance.md from the figures."""
    figures = [json.loads(line) for line in FIGURES.read_text(encoding="utf-8").splitlines()]
    by_name: dict[str, list[Figure]] = {}
    commands = [figure["command"] for figure in figures if "command" in figure]
    for figure in figures:
        if "command" not in figure:
            by_name.setdefault(figure["benchmark"], []).append(figure)
    where = by_name["machine"][0]
    lines = [
        "# Performance",
        "",
        "Written by `make bench`: each figure is a median of contenders that took turns in one",
        "process, and the share of peak is that of the best square product measured in the same",
        "run; of near peak, that of the best one measured just before, in the median of rounds.",
        "A round in which the host of a virtual machine took the cores away is repeated. The",
        "machine was a shared one: ratios are worth more than times.",
        "",
        f"{where['date']}; {where['processor']}, {where['cores']} cores, {where['memory_gib']} "
        f"GiB, no GPU; Python {where['python']}, torch {where['torch']}, deepspeed "
        f"{where['deepspeed']}.",
        "",
        "```",
        *commands,
        "```",
        "",
        *lstm_part(by_name["lstm"]),
        *encoder_part(by_name["encoder"]),
        *softmax_part(by_name["softmax"]),
        *step_part(by_name["step"]),
        *scaling_part(by_name["scaling"]),
        *other_part("Inference (`benchmarks/inference.py`)", by_name["inference"]),
        *other_part("Loader (`benchmarks/loader.py`)", by_name["loader"]),
    ]
    plot(by_name["scaling"])
    PAGE.write_text("\n".join(lines) + NOTES, encoding="utf-8")


def main() -> None:
    """Measure, then write; or write again."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write-only", action="store_true", help="from benchmarks/figures.jsonl")
    parser.add_argument("--only", nargs="*", default=[], help="measure these again")
    parser.add_argument("--encoder-text", help="raw text (default: words spelt like English)")
    parser.add_argument("--inference-text", help="raw lines, or a .csv (default: Zipf's law)")
    arguments = parser.parse_args()
    if not arguments.write_only:
        texts = {"encoder.py": arguments.encoder_text, "inference.py": arguments.inference_text}
        run_all(texts, arguments.only)
    write_page()


if __name__ == "__main__":
    main()
