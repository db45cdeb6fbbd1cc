"""The page docs/performance.md, from the figures of all benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from report_plot import plot
from report_runs import (
    build_part,
    contention_part,
    deepspeed_part,
    inference_part,
    search_part,
    serving_part,
)
from report_table import RATIO_HEAD, Figure, json_lines, ratio, seconds, table

INTRODUCTION = """\
Written by `make bench`. Each time is a median over rounds in which all implementations run in turn
in one process; "ours" is the implementation of this library. "Share of peak" compares the
arithmetic that the result requires with the fastest square matrix product of the whole run;
"same round" is the median of that share over rounds, each compared with the fastest product
measured just before it. A round in which the host took CPU time away from the virtual
machine is repeated. The machine was shared, so ratios are more reliable than times.

A speedup is the median of the ratios of the rounds. Its spread is the width of the 95% confidence
interval of that median, relative to the median. Rounds are repeated until the spread is at most
5%, unless a table shows another bound; a figure that does not reach the bound is marked as too
noisy."""

PICTURE = "performance.png"

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
    commands = [figure for figure in figures if "command" in figure]
    by_name: dict[str, list[Figure]] = {}
    for figure in figures:
        if "command" not in figure:
            by_name.setdefault(figure["benchmark"], []).append(figure)
    machine = by_name["machine"][0]
    processors = {f["benchmark"]: f["processor"] for f in commands if "processor" in f}
    paragraphs = [
        "# Performance",
        INTRODUCTION,
        f"{machine['date']}; {machine['processor']}, {machine['cores']} cores, "
        f"{machine['memory_gib']} GiB, no GPU; Python {machine['python']}, torch "
        f"{machine['torch']}, deepspeed {machine['deepspeed']}.",
        "\n".join(["```", *(figure["command"] for figure in commands), "```"]),
        *(
            paragraph
            for name, part in PARTS.items()
            if name in by_name
            for paragraph in with_captions(
                part(by_name[name]), processors.get(name, machine["processor"])
            )
        ),
        "## Notes",
        NOTES,
    ]
    if "scaling" in by_name:
        plot(by_name["scaling"], path.with_name(PICTURE))
    path.write_text("\n\n".join(paragraphs) + "\n", encoding="utf-8")


def with_captions(paragraphs: list[str], processor: str) -> list[str]:
    """Return the paragraphs of a section, with the processor below each table."""
    captioned = []
    for paragraph in paragraphs:
        is_table = paragraph.startswith(("| ", "```json"))
        captioned += [paragraph, *([f"Measured on: {processor}."] if is_table else [])]
    return captioned


def lstm_part(figures: list[Figure]) -> list[str]:
    """Return the section on the LSTM."""
    times = [
        (
            f["size"],
            f["batch"],
            f["pass"],
            f["name"],
            seconds(f["seconds"]),
            f["share_of_peak"],
            f["share_of_near_peak"],
        )
        for f in figures
        if "seconds" in f
    ]
    ratios = [
        (f["size"], f["pass"], f["name"], f["than"], *ratio(f)) for f in figures if "times" in f
    ]
    return [
        "## LSTM",
        "One projected layer, both directions.",
        table(
            ("size", "batch", "pass", "", "median", "share of peak", "share of peak, same round"),
            times,
        ),
        table(("size", "pass", "", "compared with", *RATIO_HEAD), ratios),
    ]


def encoder_part(figures: list[Figure]) -> list[str]:
    """Return the section on the token encoder."""
    times = [
        (
            f["name"],
            seconds(f["seconds"]),
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
            ("ours compared with", *RATIO_HEAD),
            [(f["than"], *ratio(f)) for f in figures if "times" in f],
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
            seconds(f["seconds"]),
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
            ("", "compared with", *RATIO_HEAD),
            [(f["name"], f["than"], *ratio(f)) for f in figures if "times" in f],
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
            seconds(f["seconds"]),
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


def scaling_part(figures: list[Figure]) -> list[str]:
    """Return the section on step time by size."""
    times = [
        (
            f["axis"],
            f"{f['value']:,}",
            seconds(f["seconds"]) if "seconds" in f else "",
            seconds(f["lstm_seconds"]) if "lstm_seconds" in f else "",
            f"{f['words_per_second']:,.0f}",
        )
        for f in figures
        if "axis" in f
    ]
    return [
        "## Scaling",
        "The model of configs/small.json, 64 rows x 20, 50,000 words, with one size changed at a "
        "time; the projection is one eighth of the hidden size.",
        f"![words per second and step time by size]({PICTURE})",
        table(("size", "value", "step", "LSTMs in the step", "words/s"), times),
    ]


def loader_part(figures: list[Figure]) -> list[str]:
    """Return the section on the loader."""
    return ["## Loader", json_lines(figures)]


# The sections in the order of the page, by benchmark; a section without figures is left out.
PARTS: dict[str, Callable[[list[Figure]], list[str]]] = {
    "lstm": lstm_part,
    "encoder": encoder_part,
    "softmax": softmax_part,
    "step": step_part,
    "deepspeed_step": deepspeed_part,
    "contention": contention_part,
    "scaling": scaling_part,
    "inference": inference_part,
    "serving": serving_part,
    "search": search_part,
    "build_corpus": build_part,
    "loader": loader_part,
}
