"""The parts of a results page: tables, percentages, JSON, HTML, plots, the output directory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from bilm.errors import CheckpointError, OutputError
from bilm.files.strict_json import read_json
from bilm.files.writing import atomic_directory, reject_existing, write_text

RESULTS_FILE = "results.json"

MAX_RESULTS_BYTES = 1 << 28

_DPI = 120


@dataclass(frozen=True)
class Page:
    """The contents of a directory of results."""

    figures: Mapping[str, Any]  # the fields of results.json
    paragraphs: Sequence[str]  # of report.md
    pictures: Mapping[str, Any] = field(default_factory=dict)  # matplotlib figures by file name
    files: Mapping[str, str] = field(default_factory=dict)  # further text files


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with aligned columns; the first row is the header."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def percent(mean: float, std: float | None = None) -> str:
    """Format a share in percent, with its standard deviation if there is one."""
    return f"{100 * mean:.2f}" if std is None else f"{100 * mean:.2f} ± {100 * std:.2f}"


def json_lines(records: Iterable[Mapping[str, Any]]) -> str:
    """Return one line of JSON for each record."""
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def html_document(title: str, style: str, body: Sequence[str]) -> str:
    """Return an HTML document without scripts; its heading is the title, `body` is HTML."""
    return "\n".join(
        [
            "<!DOCTYPE html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
            f"<style>{style}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            *body,
            "</body></html>\n",
        ]
    )


def marks_legend(meanings: Mapping[str, str]) -> str:
    """Return HTML that explains the classes of `<mark>` elements."""
    return ", ".join(
        f'<mark class="{name}">{escape(text)}</mark>' for name, text in meanings.items()
    )


def layer_name(layer: int) -> str:
    """Return the name of a layer in pages and plots."""
    return "layer 0 (words alone)" if layer == 0 else f"layer {layer}"


def new_figure(rows: int, columns: int, width: float, height: float) -> tuple[Any, list[Any]]:
    """Return a figure and its axes, row by row; `width` and `height` are inches per axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def save_figure(figure: Any, path: Path) -> None:
    """Write a plot; the same figure gives the same bytes."""
    figure.savefig(path, dpi=_DPI, metadata={"Software": None})


def check_writable(output: Path) -> None:
    """Raise OutputError unless the directory in which `output` will be created is writable."""
    parent = next(path for path in output.absolute().parents if path.exists())
    if not parent.is_dir():
        raise OutputError(f"cannot create {output}: {parent} is not a directory; change --output")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise OutputError(f"cannot create {output}: {parent} is not writable; change --output")


def check_free(output: Path, kind: str, overwrite: bool) -> None:
    """Reject an output directory to which a page of this kind cannot be written.

    Commands call this before they compute anything.
    """
    check_writable(output)
    if not output.exists() or (output.is_dir() and not any(output.iterdir()) and overwrite):
        return
    reject_existing(output, CheckpointError, overwrite)
    try:
        tree = read_json(output / RESULTS_FILE, CheckpointError, MAX_RESULTS_BYTES)
    except CheckpointError:
        tree = None
    if not isinstance(tree, dict) or tree.get("format") != kind:
        raise CheckpointError(
            f"{output} exists and is not a {kind} directory, so it is not replaced; choose "
            "another output directory"
        )


def write_page(output: Path, kind: str, page: Page, overwrite: bool = False) -> None:
    """Write results.json, report.md and the plots to `output`, atomically."""
    check_free(output, kind, overwrite)
    with atomic_directory(output, CheckpointError, overwrite) as directory:
        tree = {"format": kind, "version": 1, **page.figures}
        write_text(directory / RESULTS_FILE, json.dumps(tree, indent=1, allow_nan=False) + "\n")
        write_text(directory / "report.md", "\n\n".join(page.paragraphs) + "\n")
        for name, picture in page.pictures.items():
            save_figure(picture, directory / name)
        for name, text in page.files.items():
            write_text(directory / name, text)
