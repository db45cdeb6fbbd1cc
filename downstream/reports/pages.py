"""Small pieces that every page of figures is made of: tables, percentages, pictures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bilm.errors import CheckpointError
from bilm.files.strict_json import read_json
from bilm.files.writing import atomic_directory, reject_existing, write_text

RESULTS_FILE = "results.json"

_DPI = 120


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """A table, the first row its header, aligned so that it reads in a terminal too."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def percent(mean: float, spread: float | None = None) -> str:
    """A share in per cent, with its spread if there is one."""
    return f"{100 * mean:.2f}" if spread is None else f"{100 * mean:.2f} ± {100 * spread:.2f}"


def new_figure(rows: int, columns: int, width: float, height: float) -> tuple[Any, list[Any]]:
    """A figure, and its axes row by row; sizes in inches are those of one of the axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(np.ravel(figure.subplots(rows, columns, squeeze=False)))


def save_figure(figure: Any, path: Path) -> None:
    """Write a picture; the same figure gives the same bytes."""
    figure.savefig(path, dpi=_DPI, metadata={"Software": None})


def check_free(output: Path, kind: str, overwrite: bool) -> None:
    """Refuse, before anything is computed, a place that a page of this kind cannot go to."""
    if not output.exists() or (output.is_dir() and not any(output.iterdir()) and overwrite):
        return
    reject_existing(output, CheckpointError, overwrite)
    try:
        tree = read_json(output / RESULTS_FILE, CheckpointError, 1 << 28)
    except CheckpointError:
        tree = None
    if not isinstance(tree, dict) or tree.get("format") != kind:
        raise CheckpointError(
            f"{output} exists and holds no {kind}, so it is not replaced; choose another place"
        )


def write_page(
    output: Path,
    kind: str,
    figures: dict[str, Any],
    page: Sequence[str],
    pictures: dict[str, Any] | None = None,
    overwrite: bool = False,
) -> None:
    """Write results.json, report.md and pictures into `output`: all of them, or nothing."""
    check_free(output, kind, overwrite)
    with atomic_directory(output, CheckpointError, overwrite) as place:
        tree = {"format": kind, "version": 1, **figures}
        write_text(place / RESULTS_FILE, json.dumps(tree, indent=1, allow_nan=False) + "\n")
        write_text(place / "report.md", "\n\n".join(page) + "\n")
        for name, picture in (pictures or {}).items():
            save_figure(picture, place / name)
