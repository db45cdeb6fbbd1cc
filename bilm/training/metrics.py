"""The logs of a run: metrics.jsonl, TensorBoard, and a progress bar or log lines.

Only rank 0 has a `MetricsLog`. metrics.jsonl has one JSON object per line: `event` is "train"
(averages over the steps since the previous line), "heldout" or "checkpoint". With a sampled softmax
the training perplexity is that of the *sampled* loss; it is much lower than the held-out
perplexity, and always labeled "sampled".
"""

from __future__ import annotations

import json
import logging
import math
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import torch
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from bilm.errors import CheckpointError
from bilm.files.writing import is_disk_full, write_text
from bilm.pretrained.file_names import METRICS_FILE
from bilm.training.perplexity import Perplexity
from bilm.training.run_directory import TENSORBOARD_DIRECTORY
from bilm.training.step import StepInspector

logger = logging.getLogger(__name__)


class MetricsLog:
    """Writes the metrics of one run.

    Drops the lines after step `start`, which the resumed run will write again. `on_metrics` is
    called with each line.
    """

    def __init__(
        self,
        directory: Path,
        start: int,
        num_steps: int,
        on_metrics: Callable[[dict[str, Any]], object] | None = None,
    ) -> None:
        self._on_metrics = on_metrics
        self._path = directory / METRICS_FILE
        _drop_lines_after(self._path, start)
        self._file: TextIO = open(self._path, "a", encoding="utf-8")  # noqa: SIM115
        self._board = SummaryWriter(
            str(directory / TENSORBOARD_DIRECTORY), purge_step=start + 1, flush_secs=10
        )
        self._excepthook, threading.excepthook = threading.excepthook, _hide_full_disk
        self._num_steps = num_steps
        self._start, self._started = start, time.monotonic()
        self._heldout: float | None = None
        self._bar: tqdm[Any] | None = None
        if sys.stderr.isatty():
            self._bar = tqdm(total=num_steps, initial=start, unit="step", dynamic_ncols=True)

    def advance(self) -> None:
        """Advance the progress bar by one step; it is drawn at most ten times a second."""
        if self._bar is not None:
            self._bar.update()

    def train(self, step: int, figures: dict[str, float]) -> None:
        """Log the training figures of the steps since the previous line."""
        self._write({"event": "train", "step": step, **figures})
        self._draw({f"train/{name}": value for name, value in figures.items()}, step)
        self._show(step, figures)

    def heldout(self, step: int, perplexity: Perplexity, seconds: float) -> None:
        """Log a held-out evaluation."""
        self._heldout = perplexity.mean
        figures = {
            "perplexity": perplexity.mean,
            **{f"perplexity_{name}": value for name, value in perplexity.by_direction.items()},
            "unknown_share": perplexity.unknown_share,
            "predictions": perplexity.num_predictions,
        }
        available = {"available_predictions": perplexity.num_available}
        self._write({"event": "heldout", "step": step, **figures, **available, "seconds": seconds})
        self._draw({f"heldout/{name}": value for name, value in figures.items()}, step)
        parts = ", ".join(f"{k} {v:.2f}" for k, v in perplexity.by_direction.items())
        self._print(
            f"step {step:,}: held-out perplexity {perplexity.mean:.2f} ({parts}; full softmax, "
            f"{perplexity.text}, {perplexity.unknown_share:.2%} unknown words, {seconds:.1f} s)"
        )

    def checkpoint(self, step: int, path: Path, seconds: float, stall_seconds: float) -> None:
        """Log a saved checkpoint, for which training waited `stall_seconds`."""
        times = {"seconds": seconds, "stall_seconds": stall_seconds}
        self._write({"event": "checkpoint", "step": step, **times})
        self._draw({f"time/checkpoint_{name}": value for name, value in times.items()}, step)
        self._print(
            f"step {step:,}: saved {path.name} in {seconds:.1f} s (training waited "
            f"{stall_seconds:.2f} s)"
        )

    def inspection(self, step: int, inspector: StepInspector) -> None:
        """Log update-to-weight ratios, and histograms of weights and gradients."""
        ratios = inspector.update_ratios().items()
        self._draw({f"update_ratio/{module}": ratio for module, ratio in ratios}, step)
        for name, tensor in inspector.histograms.items():
            if tensor.numel() and bool(torch.isfinite(tensor).all()):
                with self._explain_write_errors():
                    self._board.add_histogram(name, tensor, step)

    def close(self) -> None:
        """Close all files. Every line of metrics.jsonl has been flushed already."""
        if self._bar is not None:
            self._bar.close()
        threading.excepthook = self._excepthook
        for file in (self._board, self._file):
            try:
                file.close()
            except OSError as error:
                logger.warning("the end of the TensorBoard file may be missing: %s", error.strerror)

    def _draw(self, figures: dict[str, float], step: int) -> None:
        with self._explain_write_errors():
            for name, value in figures.items():
                self._board.add_scalar(name, value, step)

    def _write(self, line: dict[str, Any]) -> None:
        text = json.dumps(line, allow_nan=False) + "\n"
        with self._explain_write_errors(len(text)):
            self._file.write(text)
            self._file.flush()
        if self._on_metrics is not None:
            self._on_metrics(line)

    @contextmanager
    def _explain_write_errors(self, needed: int = 0) -> Iterator[None]:
        """Add the remedy to a write error; TensorBoard may report one from an earlier write."""
        try:
            yield
        except OSError as error:
            free = shutil.disk_usage(self._path.parent).free
            raise CheckpointError(
                f"cannot write to {self._path} or {TENSORBOARD_DIRECTORY}/ beside it: "
                f"{error.strerror}; {max(1, needed):,} bytes needed, {free:,} bytes free. Free "
                "some space, then run the same command to resume from the latest checkpoint"
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

    def _print(self, text: str) -> None:
        if self._bar is not None:
            self._bar.write(text, file=sys.stderr)
        else:
            logger.info("%s", text)


def _hide_full_disk(args: threading.ExceptHookArgs) -> None:
    """Print the traceback of a thread, unless it is TensorBoard's and the disk is full.

    TensorBoard raises the error of its writing thread again in the main thread.
    """
    is_full_disk = isinstance(args.exc_value, OSError) and is_disk_full(args.exc_value)
    if not is_full_disk:
        threading.__excepthook__(args)


def _drop_lines_after(path: Path, step: int) -> None:
    """Keep the lines up to `step`; drop a line that is incomplete because the run was killed."""
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
