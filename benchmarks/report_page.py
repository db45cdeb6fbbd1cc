"""The page docs/performance.md, from the figures of all benchmarks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from report_plot import plot

Figure = dict[str, Any]

INTRODUCTION = """\
Written by `make bench`. Each time is a median over rounds in which all implementations run in turn
in one process; "ours" is the implementation of this library. "Share of peak" compares the
arithmetic that the result requires with the fastest square matrix product of the whole run;
"same round" is the median of that share over rounds, each compared with the fastest product
measured just before it. A round in which the host took CPU time away from the virtual
machine is repeated. The machine was shared, so ratios are more reliable than times."""

NOTES = """\
- The part of a step that is not spent in matrix products is spent in the LSTM cell, forward and
  backward (memory-bound), the random numbers for dropout, the lookup of characters, the gradient
  norm and the optimizer. The products themselves are slower than the square one where 128 rows
  are multiplied by a weight matrix with 16,384 columns.
- A training process keeps freed memory (`bilm/distributed/process.py`), and so do the benchmarks,
  except while another implementation runs. Setting any `MALLOC_` environment variable turns this
  off.
- Without a C compiler and with `BILM_KERNELS=torch`, everything runs in plain PyTorch and computes
  the same numbers. On a GPU, the Triton kernels are used if Triton is installed. These measurements
  were made without a GPU and do not apply to one.
- For comparison: on two such cores, the original TensorFlow program takes 17 s for a step of 128 x
  20 words at the size of configs/small.json with 50,000 words, and 63 s at the size of
  configs/big.json."""


def write_page(figures: list[Figure], path: Path) -> None:
    """Write the page and, next to it, its plot."""
    commands = [figure["command"] for figure in figures if "command" in figure]
    by_name: dict[str, list[Figure]] = {}
    for figure in figures:
        if "command" not in figure:
            by_name.setdefault(figure["benchmark"], []).append(figure)
    machine = by_name["machine"][0]
    picture = path.with_suffix(".png")
    paragraphs = [
        "# Performance",
        INTRODUCTION,
        f"{machine['date']}; {machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory_gib']} GiB, no GPU; Python {machine['python']}, torch "
        f"{machine['torch']}, deepspeed {machine['deepspeed']}.",
        "\n".join(["```", *commands, "```"]),
        *lstm_part(by_name["lstm"]),
        *encoder_part(by_name["encoder"]),
        *softmax_part(by_name["softmax"]),
        *step_part(by_name["step"]),
        *scaling_part(by_name["scaling"], picture.name),
        *json_part("Inference (`benchmarks/inference.py`)", by_name["inference"]),
        *json_part("Loader (`benchmarks/loader.py`)", by_name["loader"]),
        "## Notes",
        NOTES,
    ]
    plot(by_name["scaling"], picture)
    path.write_text("\n\n".join(paragraphs) + "\n", encoding="utf-8")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines)


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value >= 0.1 else f"{1000 * value:.3g} ms"


def _speedup(figure: Figure) -> str:
    low, high = figure["spread"]
    return f"{figure['times']:.2f} ({low:.2f} to {high:.2f})"


def lstm_part(figures: list[Figure]) -> list[str]:
    """Return the section on the LSTM."""
    times = [
        (
            f["size"],
            f["batch"],
            f["pass"],
            f["name"],
            _seconds(f["seconds"]),
            f["share_of_peak"],
            f["share_of_near_peak"],
        )
        for f in figures
        if "seconds" in f
    ]
    ratios = [(f["size"], f["pass"], f["than"], _speedup(f)) for f in figures if "times" in f]
    return [
        "## LSTM",
        "One projected layer, both directions.",
        table(
            ("size", "batch", "pass", "", "median", "share of peak", "share of peak, same round"),
            times,
        ),
        table(("size", "pass", "ours compared with", "speedup (range over rounds)"), ratios),
    ]


def encoder_part(figures: list[Figure]) -> list[str]:
    """Return the section on the token encoder."""
    times = [
        (
            f["name"],
            _seconds(f["seconds"]),
            f["tokens"] if "every token" in f["name"] else f["distinct_words"],
        )
        for f in figures
        if "seconds" in f
    ]
    differences = [
        (
            f["name"],
            f"{f['forward_from_float64']:.1e}",
            f"{f['filter_gradients_from_float64']:.1e}",
            f"{f['all_gradients_from_float64']:.1e}",
        )
        for f in figures
        if "forward_from_float64" in f
    ]
    return [
        "## Token encoder",
        "The token encoder of the published model, 128 x 20 words in both directions, forward + "
        "backward.",
        table(("", "median", "words encoded"), times),
        table(
            ("ours compared with", "speedup (range over rounds)"),
            [(f["than"], _speedup(f)) for f in figures if "times" in f],
        ),
        table(
            ("difference from float64", "vectors", "gradients of the filters", "all gradients"),
            differences,
        ),
    ]


def softmax_part(figures: list[Figure]) -> list[str]:
    """Return the section on the sampled softmax."""
    memory = {
        (f["name"], f["vocabulary"]): f["extra_memory_gb"]
        for f in figures
        if "extra_memory_gb" in f
    }
    times = [
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
    ]
    head = ("", "vocabulary", "median", "share of peak", "share of peak, same round")
    return [
        "## Sampled softmax with its optimizer step",
        "2 x 2,560 targets, 512 dimensions, 8,192 negatives per direction.",
        table((*head, "extra memory"), times),
        table(
            ("", "compared with", "speedup (range over rounds)"),
            [(f["name"], f["than"], _speedup(f)) for f in figures if "times" in f],
        ),
    ]


def step_part(figures: list[Figure]) -> list[str]:
    """Return the section on a whole training step and its parts."""
    parts = [f for f in figures if "part" in f]
    totals = {f["config"]: f["seconds"] for f in parts if f["part"] == "step"}
    times = [
        (
            f["config"],
            f"{f['vocabulary']:,}",
            f["batch"],
            f["part"],
            _seconds(f["seconds"]),
            f"{100 * f['seconds'] / totals[f['config']]:.1f}%",
        )
        for f in parts
    ]
    rates = [
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
    ]
    head = ("config", "words/s", "distinct words", "peak", "share of peak")
    return [
        "## Training step",
        "One process. The share of peak counts only the matrix products that an ideal "
        "implementation needs (LSTMs, softmax, and the highways and projection of distinct words).",
        table(("config", "vocabulary", "batch", "part", "median", "share of the step"), times),
        table((*head, "share of peak, same round", "memory"), rates),
    ]


def scaling_part(figures: list[Figure], picture: str) -> list[str]:
    """Return the section on step time by size, and on two ranks."""
    times = [
        (
            f["axis"],
            f"{f['value']:,}",
            _seconds(f["seconds"]) if "seconds" in f else "",
            _seconds(f["lstm_seconds"]) if "lstm_seconds" in f else "",
            f"{f['words_per_second']:,.0f}",
        )
        for f in figures
        if "axis" in f
    ]
    ratios = [
        (f["name"], f["than"], _speedup(f), f"{f['peak_times']:.2f}")
        for f in figures
        if "times" in f
    ]
    head = ("", "compared with", "speedup (range over rounds)")
    return [
        "## Scaling",
        "The model of configs/small.json, 64 rows x 20, 50,000 words, with one size changed at a "
        "time; the projection is one eighth of the hidden size.",
        f"![words per second and step time by size]({picture})",
        table(("size", "value", "step", "LSTMs in the step", "words/s"), times),
        table((*head, "speedup of the matrix product alone"), ratios),
    ]


def json_part(title: str, figures: list[Figure]) -> list[str]:
    """Return a section with the figures as JSON lines."""
    lines = [json.dumps({k: v for k, v in f.items() if k != "benchmark"}) for f in figures]
    return [f"## {title}", "\n".join(["```json", *lines, "```"])]
