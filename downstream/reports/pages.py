"""The parts of a results page: tables, percentages, JSON, HTML, plots, the output directory."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from bilm.errors import CheckpointError, OutputError
from bilm.files.strict_json import read_json
from bilm.files.writing import atomic_directory, reject_existing, write_text
from downstream.reports.figure_texts import prepare_texts

logger = logging.getLogger(__name__)

RESULTS_FILE = "results.json"

MAX_RESULTS_BYTES = 1 << 28

_DPI = 120

_MAX_SHOWN_CHARACTERS = 60

_MAX_REASON = 300

# Long words are broken. Marks and labels do not change the order of the words next to them, in
# scripts of both directions.
_COMMON_STYLE = """
body { overflow-wrap: anywhere; }
mark, sub, b, small { unicode-bidi: isolate; }
"""

_MAX_PLAIN = 1e15  # larger numbers have an exponent
_MAX_DECIMALS = 9


@dataclass(frozen=True)
class Page:
    """The contents of a directory of results."""

    figures: Mapping[str, Any]  # the fields of results.json
    paragraphs: Sequence[str]  # of report.md
    pictures: Mapping[str, Any] = field(default_factory=dict)  # matplotlib figures by file name
    files: Mapping[str, str] = field(default_factory=dict)  # further text files


# A backslash before a character of Markdown; an entity where not all programs know the backslash.
_LITERAL = {ord(char): "\\" + char for char in "\\`*_[]~$"} | {
    ord("&"): "&amp;",
    ord("<"): "&lt;",
    ord(">"): "&gt;",
}
# What begins a heading, an item of a list or a table at the start of a line; its end is escaped.
_BLOCK_START = re.compile(r"^(\d{1,9})?(?(1)[.)]|[-+#=:])")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x9f]")


def literal(text: str) -> str:
    """Return a text from the data for a page in Markdown, which shows it literally, in one line.

    White space, including line breaks, becomes single spaces.
    """
    line = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", " ".join(text.split()))
    if line.startswith("|"):  # `markdown_table` escapes bars with a backslash
        return "&#124;" + line[1:].translate(_LITERAL)
    return _BLOCK_START.sub(lambda m: m[0][:-1] + "\\" + m[0][-1], line.translate(_LITERAL))


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


def plain_number(value: float, digits: int = 4) -> str:
    """Format a number that is not a share with at least `digits` significant digits."""
    return plain_numbers([value], digits)[0]


def plain_numbers(values: Sequence[float], digits: int = 4) -> list[str]:
    """Format numbers with the same decimals, so that their range has at least `digits` digits.

    Whole numbers have no decimals. Only very large or small numbers have an exponent.
    """
    largest = max(map(abs, values))
    scale = max(values) - min(values) or largest
    if largest >= _MAX_PLAIN or not math.isfinite(largest):
        return [f"{value:.{digits}g}" for value in values]
    if scale == 0 or all(float(value).is_integer() for value in values):
        return [f"{value:,.0f}" for value in values]
    decimals = max(0, digits - 1 - math.floor(math.log10(scale)))
    if decimals > _MAX_DECIMALS:
        return [f"{value:.{digits}g}" for value in values]
    return [f"{value:,.{decimals}f}" for value in values]


def json_lines(records: Iterable[Mapping[str, Any]]) -> str:
    """Return one line of JSON for each record."""
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def html_document(title: str, style: str, body: Sequence[str]) -> str:
    """Return an HTML document without scripts; its heading is the title, `body` is HTML.

    Elements with a text from the data should have `dir="auto"`, which finds its direction.
    """
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>",
            f"<style>{_COMMON_STYLE}{style}</style></head><body>",
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
    """Write a plot; the same figure gives the same bytes. Its texts are drawn literally."""
    missing = prepare_texts(figure)
    if missing:
        logger.warning(
            "%s: no installed font has the characters %s; they are drawn as boxes",
            path.name,
            missing if len(missing) <= _MAX_SHOWN_CHARACTERS else f"{missing[:60]}...",
        )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(?s)Glyph \d+ .*missing from")
        figure.savefig(path, dpi=_DPI, metadata={"Software": None})


def draw_pictures(
    pictures: Mapping[str, Callable[[Path], None]], directory: Path
) -> dict[str, str]:
    """Draw the pictures of a directory of results; return the reasons of those that fail, by name.

    A failure is logged and does not end the command, so that trained heads are not lost.
    """
    failures = {}
    for name, draw in pictures.items():
        try:
            draw(directory / name)
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            failures[name] = f"{type(error).__name__}: {lines[-1].strip()}"[:_MAX_REASON]
            logger.warning("the plot %s is left out (%s)", name, failures[name])
            (directory / name).unlink(missing_ok=True)
    return failures


def without_pictures(text: str, failures: Mapping[str, str]) -> str:
    """Replace the pictures that could not be drawn by the reasons, in a page in Markdown."""
    for name, reason in failures.items():
        note = f"The plot `{name}` could not be drawn: {literal(reason)}."
        picture = re.compile(rf"!\[[^\]]*\]\({re.escape(name)}\)")
        text = picture.sub(note.replace("\\", "\\\\"), text)
    return text


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
        drawings = {name: partial(save_figure, one) for name, one in page.pictures.items()}
        failures = draw_pictures(drawings, directory)
        text = without_pictures("\n\n".join(page.paragraphs), failures)
        write_text(directory / "report.md", text + "\n")
        for name, text in page.files.items():
            write_text(directory / name, text)
