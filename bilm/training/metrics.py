"""What a run writes down and shows: metrics.jsonl, TensorBoard, a progress bar or plain lines.

Only rank 0 has a `MetricsLog`. metrics.jsonl has one JSON object a line: `event` is "train" (sums
over the steps since the line before), "heldout" or "checkpoint". Training perplexity is of the
*sampled* loss, hence much lower than the held-out one, and always labelled so.
"""

from __future__ import annotations

import json
import logging
import math
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import torch
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from bilm.errors import CheckpointError
from bilm.files.writing import is_disk_full, write_text
from bilm.training.perplexity import Perplexity
from bilm.training.step import StepInspector

logger = logging.getLogger(__name__)

METRICS_FILE = "metrics.jsonl"

TENSORBOARD_DIRECTORY = "tensorboard"


class Meters:
    """Sums over the steps since the last line. Kept in checkpoints, so that the line after a
    resume sums up the very same steps.
    """

    def __init__(self, saved: dict[str, float] | None = None) -> None:
        self.sums: dict[str, float] = dict(saved or {})

    def add(self, **values: float) -> None:
        """Add to the sums."""
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def take(self) -> dict[str, float]:
        """The sums so far, which start again from zero."""
        sums, self.sums = self.sums, {}
        return sums


class MetricsLog:
    """Writes metrics of one run; lines of steps after `start` are of a lost future, and dropped."""

    def __init__(self, directory: Path, start: int, num_steps: int) -> None:
        self._path = directory / METRICS_FILE
        _drop_lines_after(self._path, start)
        self._file: TextIO = open(self._path, "a", encoding="utf-8")  # noqa: SIM115
        self._board = SummaryWriter(
            str(directory / TENSORBOARD_DIRECTORY), purge_step=start + 1, flush_secs=10
        )
        threading.excepthook = _unless_told_elsewhere
        self._num_steps = num_steps
        self._start, self._started = start, time.monotonic()
        self._heldout: float | None = None
        self._bar: tqdm[Any] | None = None
        if sys.stderr.isatty():
            self._bar = tqdm(total=num_steps, initial=start, unit="step", dynamic_ncols=True)

    def train(self, step: int, figures: dict[str, float]) -> None:
        """A line of training figures."""
        self._write({"event": "train", "step": step, **figures})
        self._draw({f"train/{name}": value for name, value in figures.items()}, step)
        self._show(step, figures)

    def heldout(self, step: int, perplexity: Perplexity, seconds: float) -> None:
        """A held-out evaluation."""
        self._heldout = perplexity.mean
        figures = {
            "perplexity": perplexity.mean,
            **{f"perplexity_{name}": value for name, value in perplexity.by_direction.items()},
            "unknown_share": perplexity.unknown_share,
        }
        self._write({"event": "heldout", "step": step, **figures, "seconds": seconds})
        self._draw({f"heldout/{name}": value for name, value in figures.items()}, step)
        parts = ", ".join(f"{k} {v:.2f}" for k, v in perplexity.by_direction.items())
        self._say(
            f"step {step:,}: held-out perplexity {perplexity.mean:.2f} ({parts}; full softmax, "
            f"{perplexity.unknown_share:.2%} unknown words, {seconds:.1f} s)"
        )

    def checkpoint(self, step: int, path: Path, seconds: float) -> None:
        """A saved checkpoint."""
        self._write({"event": "checkpoint", "step": step, "seconds": seconds})
        self._draw({"time/checkpoint_seconds": seconds}, step)
        self._say(f"step {step:,}: saved {path.name} in {seconds:.1f} s")

    def inspected(self, step: int, inspector: StepInspector) -> None:
        """Update-to-weight ratios, and distributions of weights and gradients."""
        ratios = inspector.update_ratios().items()
        self._draw({f"update_ratio/{module}": ratio for module, ratio in ratios}, step)
        for name, tensor in inspector.histograms.items():
            if tensor.numel() and bool(torch.isfinite(tensor).all()):
                with self._told_of_full_disk():
                    self._board.add_histogram(name, tensor, step)

    def close(self) -> None:
        """Finish all files. Every line of metrics.jsonl is on disk already."""
        if self._bar is not None:
            self._bar.close()
        for file in (self._board, self._file):
            try:
                file.close()
            except OSError as error:
                logger.warning("the end of TensorBoard's file may be missing: %s", error.strerror)

    def _draw(self, figures: dict[str, float], step: int) -> None:
        with self._told_of_full_disk():
            for name, value in figures.items():
                self._board.add_scalar(name, value, step)

    def _write(self, line: dict[str, Any]) -> None:
        text = json.dumps(line, allow_nan=False) + "\n"
        with self._told_of_full_disk(len(text)):
            self._file.write(text)
            self._file.flush()

    @contextmanager
    def _told_of_full_disk(self, needed: int = 0) -> Iterator[None]:
        """An error of writing says what to do; TensorBoard's may be of what it was given before."""
        try:
            yield
        except OSError as error:
            free = shutil.disk_usage(self._path.parent).free
            raise CheckpointError(
                f"cannot write to {self._path} or {TENSORBOARD_DIRECTORY}/ beside it: "
                f"{error.strerror}; {max(1, needed):,} bytes needed, {free:,} bytes free; make "
                "room, and the same command goes on from the newest checkpoint"
            ) from None

    def _show(self, step: int, figures: dict[str, float]) -> None:
        speed = figures["words_per_second"]
        kind = "sampled" if "perplexity_sampled" in figures else "training"
        perplexity = figures.get("perplexity_sampled", figures.get("perplexity_training", math.nan))
        if self._bar is not None:
            shown = {f"{kind} ppl": f"{perplexity:.1f}", "words/s": f"{speed:,.0f}"}
            if self._heldout is not None:
                shown["held-out ppl"] = f"{self._heldout:.1f}"
            self._bar.set_postfix(shown, refresh=False)
            self._bar.update(step - self._bar.n)
            return
        elapsed = time.monotonic() - self._started
        left = elapsed / max(1, step - self._start) * (self._num_steps - step)
        logger.info(
            "step %s of %s: %s perplexity %.2f, gradient norm %.2f, %s words/s, %s left",
            f"{step:,}",
            f"{self._num_steps:,}",
            kind,
            perplexity,
            figures["gradient_norm"],
            f"{speed:,.0f}",
            _duration(left),
        )

    def _say(self, text: str) -> None:
        if self._bar is not None:
            self._bar.write(text, file=sys.stderr)
        else:
            logger.info("%s", text)


def _unless_told_elsewhere(args: threading.ExceptHookArgs) -> None:
    """TensorBoard hands an error of its writing thread on to us; a traceback says it twice."""
    is_full_disk = isinstance(args.exc_value, OSError) and is_disk_full(args.exc_value)
    if not is_full_disk:
        threading.__excepthook__(args)


def _drop_lines_after(path: Path, step: int) -> None:
    """Keep the whole lines up to `step`; a kill may have left half of one."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line)
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    write_text(path, "".join(f"{line}\n" for line in kept))


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s"
