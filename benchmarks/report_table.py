"""Tables of figures in Markdown, for docs/performance.md."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

Figure = dict[str, Any]

SPEEDUP = "speedup (range over rounds)"
RATIO_HEAD = (SPEEDUP, "rounds", "spread")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines)


def seconds(value: float) -> str:
    """Return a duration in seconds or milliseconds."""
    return f"{value:.3g} s" if value >= 0.1 else f"{1000 * value:.3g} ms"


def ratio(figure: Figure) -> tuple[str, str, str]:
    """Return the columns of `RATIO_HEAD`; a figure that is too noisy is marked."""
    low, high = figure["range"]
    spread = f"{100 * figure['spread']:.1f}%" if "spread" in figure else ""
    if figure.get("too_noisy"):
        spread = f"**too noisy: {spread}**"
    return f"{figure['times']:.2f} ({low:.2f} to {high:.2f})", figure.get("rounds", ""), spread


def json_lines(figures: Iterable[Figure]) -> str:
    """Return the figures as JSON lines."""
    lines = [json.dumps({k: v for k, v in f.items() if k != "benchmark"}) for f in figures]
    return "\n".join(["```json", *lines, "```"])
