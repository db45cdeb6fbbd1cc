"""The figures of the scenarios, and the table of docs/cluster.md that shows them."""

from __future__ import annotations

import json
import os
import platform
from importlib.metadata import version
from typing import Any

from tests.conftest import ROOT

FIGURES = ROOT / "tests" / "cluster" / "figures.jsonl"
PAGE = ROOT / "docs" / "cluster.md"
START = "<!-- the table, by `make cluster` -->"
END = "<!-- the end of the table -->"

Rows = dict[str, dict[str, Any]]


def read_figures() -> Rows:
    """Return the stored rows by the names of their scenarios."""
    if not FIGURES.exists():
        return {}
    rows = [json.loads(line) for line in FIGURES.read_text("utf-8").splitlines()]
    return {row["name"]: row for row in rows}


def write_figures(rows: Rows) -> None:
    """Store rows."""
    text = "".join(json.dumps(row) + "\n" for row in rows.values())
    FIGURES.write_text(text, "utf-8")


def write_page(rows: list[dict[str, Any]]) -> None:
    """Replace the table between the two marks of the page."""
    PAGE.write_text(with_table(PAGE.read_text("utf-8"), rows), "utf-8")


def with_table(page: str, rows: list[dict[str, Any]]) -> str:
    """Return the page with the table of these rows; the text around the marks stays as it is."""
    head, _, rest = page.partition(START)
    _, _, tail = rest.partition(END)
    lines = ["| scenario | what happened | measured | seconds | result |", "|---|---|---|---|---|"]
    for row in rows:
        what = row["what"].splitlines()[0][:200].replace("|", "\\|")
        result = "passed" if row["passed"] else "**failed**"
        lines.append(
            f"| {row['scenario']} | {what} | {row['figure']} | {row['seconds']} | {result} |"
        )
    names = ", ".join(f"{name} {version(name)}" for name in ("torch", "deepspeed"))
    minutes = sum(row["seconds"] for row in rows) / 60
    last = max((row["date"] for row in rows), default="never")
    footer = (
        f"`make cluster` on {os.cpu_count()} cores, Python {platform.python_version()}, {names}: "
        f"{minutes:.0f} minutes in total, last on {last}."
    )
    table = "\n".join(lines)
    return f"{head}{START}\n\n{table}\n\n{footer}\n\n{END}{tail}"
