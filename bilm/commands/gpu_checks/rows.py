"""The rows of the table of `bilm gpu-check`, and how a check becomes a row."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch

from bilm.model.precision import Precision

Result = Literal["passed", "failed", "not run"]

# Limits on the greatest difference from results in full precision. TF32 has 11 significant bits
# instead of the 8 of bfloat16, so its limit is an eighth.
TOLERANCES: dict[Precision, float] = {"float32": 1e-5, "tf32": 6e-3, "bfloat16": 5e-2}


class NotRun(Exception):
    """A check cannot run here; the message is the reason."""


@dataclass(frozen=True)
class Setting:
    """Where and how the checks run."""

    device: torch.device
    is_quick: bool  # tiny sizes, to test the command itself
    directory: Path  # for temporary files
    golden: Path | None = None  # directory of reference files; None to compute references
    peaks: dict[Precision, float] = field(default_factory=dict)  # measured, operations per second

    def require(self, precision: Precision) -> None:
        """Raise `NotRun` if the device does not support a precision."""
        if precision == "tf32" and (
            self.device.type != "cuda" or torch.cuda.get_device_capability(self.device) < (8, 0)
        ):
            raise NotRun("this device has no TF32")
        is_cuda = self.device.type == "cuda"
        if precision == "bfloat16" and is_cuda and not torch.cuda.is_bf16_supported(False):
            raise NotRun("this device has no bfloat16")


@dataclass(frozen=True)
class Figure:
    """The result of a check; without a limit it is a measurement, which always passes."""

    text: str
    limit: str = "-"
    has_passed: bool = True


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    name: str
    figure: str
    limit: str
    result: Result
    seconds: float


Check = Callable[[Setting], Figure]


def difference_figure(differences: dict[str, float], limit: float, note: str = "") -> Figure:
    """Return the greatest of some differences, with its name, compared with a limit."""
    name, greatest = max(differences.items(), key=lambda item: _order(item[1]))
    return Figure(f"{greatest:.1e} ({name}){note}", f"{limit:g}", greatest <= limit)


def greatest_difference(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the greatest difference, relative to the expected values if those are above 1."""
    if actual.shape != expected.shape:
        return math.inf
    if not expected.numel():
        return 0.0
    a, b = actual.detach().cpu().double(), expected.detach().cpu().double()
    greatest = float((a - b).abs().max()) / max(1.0, float(b.abs().max()))
    return greatest if math.isfinite(greatest) else math.inf


def run_checks(checks: Iterable[tuple[str, Check]], setting: Setting) -> Iterator[Row]:
    """Run each check; an exception fails its own row only."""
    for name, check in checks:
        started = time.monotonic()
        result: Result
        try:
            figure = check(setting)
            result = "passed" if figure.has_passed else "failed"
        except NotRun as reason:
            figure, result = Figure(str(reason)), "not run"
        except Exception as error:  # of any library, in a check that must not end the others
            figure, result = Figure(f"{type(error).__name__}: {error}"), "failed"
        yield Row(name, figure.text, figure.limit, result, time.monotonic() - started)


def format_table(rows: Iterable[Row]) -> str:
    """Return the rows as a table in Markdown."""
    lines = ["| check | figure | limit | result | seconds |", "|---|---|---|---|---|"]
    for row in rows:
        cells = (row.name, row.figure, row.limit, row.result, f"{row.seconds:.1f}")
        lines.append(f"| {' | '.join(_cell(text) for text in cells)} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")[:300]


def _order(difference: float) -> float:
    return math.inf if math.isnan(difference) else difference
