"""The training loop of the masked LM, its checkpoints and its learning curve."""

from __future__ import annotations

import json
import logging
import shutil
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bilm.errors import CheckpointError, DivergedError
from bilm.files.strict_json import read_json
from bilm.files.writing import atomic_directory, write_text
from bilm.pretrained import tensors as files
from experiments.comparison.learning_curve import LearningCurve
from experiments.comparison.masked_model import (
    Settings,
    learning_rate_share,
    load_tensors,
    loss_of,
    new_model,
    new_optimizer,
    num_parameters,
    settings_json,
    tensors_of,
)
from experiments.comparison.pieces import TOKENIZER_FILE, Pieces, Rows

logger = logging.getLogger(__name__)

HELDOUT_ROWS = 256

SPEED_STEPS = 20

FIRST_STEPS = 5  # are slower, and not measured

SAVE_SECONDS = 300.0

MAX_GRADIENT_NORM = 1.0


class MaskedRun:
    """A run that trains a masked LM on packed rows, below `output`."""

    def __init__(self, directory: Path, output: Path, settings: Settings) -> None:
        self.settings = settings
        self._directory, self._output = directory, output
        self._pieces = Pieces.open(directory)
        self._counts: dict[str, int] = read_json(directory / "pieces.json", CheckpointError)
        self._train_rows, heldout = (
            np.load(directory / f"{split}.npy", mmap_mode="r", allow_pickle=False)
            for split in ("train", "heldout")
        )
        self._heldout = heldout[:HELDOUT_ROWS]
        self._start()

    def _start(self) -> None:
        self.model = new_model(self.settings, self._pieces.size)
        self._optimizer = new_optimizer(self.model, self.settings)

    def seconds_per_step(self) -> float:
        """Measure the speed with a few steps, whose effect is discarded."""
        for step in range(FIRST_STEPS + SPEED_STEPS):
            if step == FIRST_STEPS:
                start = time.monotonic()
            self._step(step, FIRST_STEPS + SPEED_STEPS)
        seconds = (time.monotonic() - start) / SPEED_STEPS
        self._start()
        return seconds

    def train(self, steps: int, evaluate_every: int) -> dict[str, Any]:
        """Train to the end and write the model; return the contents of `system.json`."""
        curve = LearningCurve(self._output / "curve.jsonl")
        step, before = self._resume()
        curve.cut(step)
        start = last_save = time.monotonic()
        while step < steps:
            self._step(step, steps)
            step += 1
            seconds = before + time.monotonic() - start
            if step % evaluate_every == 0 or step == steps:
                loss = self.heldout_loss()
                curve.add(step=step, seconds=seconds, words=self._words(step), loss=loss)
                logger.info("step %d of %d: held-out loss %.3f", step, steps, loss)
            if time.monotonic() - last_save > SAVE_SECONDS:
                self._save(step, seconds)
                last_save = time.monotonic()
        return self._finish(steps, before + time.monotonic() - start)

    def heldout_loss(self) -> float:
        """Return the loss per masked piece of held-out rows, always with the same masks."""
        self.model.eval()
        losses = []
        with torch.no_grad(), self._autocast():
            for i in range(0, len(self._heldout), 32):
                rows = self._heldout[i : i + 32]
                losses.append(loss_of(self.model, rows, self._pieces, (1, i)).item())
        return float(np.mean(losses))

    def _step(self, step: int, steps: int) -> None:
        self.model.train()
        share = learning_rate_share(step, steps, self.settings.warmup_share)
        for group in self._optimizer.param_groups:
            group["lr"] = share * self.settings.learning_rate
        torch.manual_seed(hash((self.settings.seed, step)) % 2**63)  # of dropout
        with self._autocast():
            loss = loss_of(self.model, self._rows(step), self._pieces, (0, step))
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), MAX_GRADIENT_NORM)
        self._optimizer.step()
        value = loss.item()
        if not np.isfinite(value):
            raise DivergedError(f"the loss is {value} at step {step}; lower --learning-rate")

    def _rows(self, step: int) -> Rows:
        places = np.arange(step * self.settings.rows, (step + 1) * self.settings.rows)
        rows: Rows = self._train_rows[places % len(self._train_rows)]
        return rows

    def _autocast(self) -> torch.autocast:
        enabled = self.settings.precision == "bfloat16"
        return torch.autocast("cpu", torch.bfloat16, enabled=enabled)

    def _words(self, step: int) -> int:
        pieces_per_word = self._counts["train_pieces"] / self._counts["train_words"]
        num_pieces = step * self.settings.rows * int(self._train_rows.shape[1])
        return round(num_pieces / pieces_per_word)

    def _save(self, step: int, seconds: float) -> None:
        target = self._output / "checkpoint"
        with atomic_directory(target, CheckpointError, overwrite=True) as directory:
            files.save_tensors(
                tensors_of(self.model, self._optimizer), directory / "state.safetensors"
            )
            write_text(directory / "progress.json", json.dumps({"step": step, "seconds": seconds}))

    def _resume(self) -> tuple[int, float]:
        directory = self._output / "checkpoint"
        if not directory.is_dir():
            return 0, 0.0
        tensors = files.load_tensors(directory / "state.safetensors")
        load_tensors(self.model, self._optimizer, tensors)
        progress = read_json(directory / "progress.json", CheckpointError)
        return int(progress["step"]), float(progress["seconds"])

    def _finish(self, steps: int, seconds: float) -> dict[str, Any]:
        self.model.save_pretrained(str(self._output / "model"))
        shutil.copyfile(self._directory / TOKENIZER_FILE, self._output / TOKENIZER_FILE)
        words = self._words(steps)
        tree = {
            "kind": "masked_lm",
            "settings": settings_json(self.settings),
            "training": {
                "parameters": num_parameters(self.model),
                "steps": steps,
                "seconds": seconds,
                "words": words,
                "words_per_second": words / seconds,
            },
            "versions": {name: version(name) for name in ("torch", "transformers", "tokenizers")},
        }
        write_text(self._output / "system.json", json.dumps(tree, indent=1) + "\n")
        shutil.rmtree(self._output / "checkpoint", ignore_errors=True)
        return tree
