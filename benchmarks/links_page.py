"""The tables of docs/cluster.md, from the figures of benchmarks/links.py."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "benchmarks" / "links.jsonl"
PAGE = ROOT / "docs" / "cluster.md"
START, END = "<!-- figures of benchmarks/links.py -->", "<!-- end of figures -->"

Figure = dict[str, Any]

WAYS = {
    "overlap": ("gradients sent after the backward pass", "during it"),
    "bf16": ("gradients in float32", "in bfloat16"),
}


def write_page() -> None:
    """Replace what is between the marks."""
    figures = [json.loads(line) for line in FIGURES.read_text(encoding="utf-8").splitlines()]
    before, rest = PAGE.read_text(encoding="utf-8").split(START)
    _, after = rest.split(END)
    text = "\n\n".join(["", validation(figures), comparison(figures), ""])
    PAGE.write_text(f"{before}{START}{text}{END}{after}", encoding="utf-8")


def validation(figures: Sequence[Figure]) -> str:
    """Return the table of measured and planned bytes and times."""
    head = ("ranks", "link", "sent per step", "planned", "", "compute", "step", "planned", "")
    return table(
        head,
        [
            (
                str(f["ranks"]),
                _rate(f["rate"]),
                f"{f['sent'] / 1e6:.2f} MB",
                f"{f['planned_sent'] / 1e6:.2f} MB",
                f"{f['sent_ratio'] - 1:+.1%}",
                f"{f['compute']:.2f} s",
                f"{f['seconds']:.2f} s",
                f"{f['planned_seconds']:.2f} s",
                f"{f['seconds_ratio'] - 1:+.0%}",
            )
            for f in figures
            if f["mode"] == "validate"
        ],
    )


def comparison(figures: Sequence[Figure]) -> str:
    """Return the table of the other modes."""
    rows = []
    for f in figures:
        if f["mode"] not in WAYS:
            continue
        slow, fast = WAYS[f["mode"]]
        rows.append(
            (
                f"{slow}, and {fast}",
                _rate(f["rate"]),
                f"{f['compute']:.2f} s",
                f"{f['load'] * f['compute']:.2f} s",
                f"{f['slow']:.2f} s",
                f"{f['fast']:.2f} s",
                f"{f['times']:.2f} ({f['spread'][0]:.2f} to {f['spread'][-1]:.2f})",
            )
        )
    head = (
        "compared",
        "link",
        "compute",
        "exchange",
        "step of the first",
        "of the second",
        "times",
    )
    return table(head, rows)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _rate(bits_per_second: float) -> str:
    return f"{bits_per_second / 1e6:.0f} Mbit/s"
