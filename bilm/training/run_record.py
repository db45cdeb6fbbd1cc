"""The record in a checkpoint's `run.json`: settings, corpus, progress, and sums for the logs.

Together with the tensors of the checkpoint it is everything that a run needs to resume. Reading is
strict: a missing, unknown or mistyped key is an error.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator

from bilm.errors import CheckpointError
from bilm.files.sections import Section, parse_section
from bilm.files.strict_json import read_json
from bilm.training.run_settings import (
    EVALUATED_WORDS,
    EVALUATION_KEYS,
    RunSettings,
    Settings,
    differences,
)

RUN_FILE = "run.json"

VERSION = 3

VERSION_WITHOUT_CHANGEABLE = 2  # its records do not contain the settings that may change

MAX_RECORD_BYTES = 1 << 24


class Progress(Section):
    """The number of finished steps, and the result of the evaluations so far."""

    step: int
    evaluated_step: int
    best_step: int | None
    best_perplexity: float | None
    evaluations_since_best: int

    def after_step(self) -> Progress:
        """Return the progress after one more step."""
        return self.model_copy(update={"step": self.step + 1})

    def after_evaluation(self, perplexity: float) -> Progress:
        """Return the progress after an evaluation at the current step."""
        update: dict[str, Any] = {
            "evaluated_step": self.step,
            "evaluations_since_best": self.evaluations_since_best + 1,
        }
        if self.best_perplexity is None or perplexity < self.best_perplexity:
            update |= {
                "best_step": self.step,
                "best_perplexity": perplexity,
                "evaluations_since_best": 0,
            }
        return self.model_copy(update=update)

    def without_evaluations(self) -> Progress:
        """Return the progress of a run whose evaluations so far do not count."""
        return NO_PROGRESS.model_copy(update={"step": self.step})


NO_PROGRESS = Progress(
    step=0, evaluated_step=0, best_step=None, best_perplexity=None, evaluations_since_best=0
)


@dataclass(frozen=True)
class StepSums:
    """Sums over the steps since the last line of metrics.jsonl.

    They are saved in checkpoints, so that the next line of a resumed run covers the same steps.
    """

    losses: tuple[float, ...] = ()  # by direction, over all predictions and ranks
    predictions: float = 0.0  # of one direction
    gradient_norm: float = 0.0
    clipped: float = 0.0
    steps: float = 0.0
    seconds: float = 0.0
    waited: float = 0.0  # seconds spent waiting for batches

    def __add__(self, other: StepSums) -> StepSums:
        losses = zip_longest(self.losses, other.losses, fillvalue=0.0)
        return StepSums(
            losses=tuple(a + b for a, b in losses),
            predictions=self.predictions + other.predictions,
            gradient_norm=self.gradient_norm + other.gradient_norm,
            clipped=self.clipped + other.clipped,
            steps=self.steps + other.steps,
            seconds=self.seconds + other.seconds,
            waited=self.waited + other.waited,
        )

    def to_json(self) -> dict[str, float]:
        """Return the sums by name; an empty object for sums over no steps."""
        if not self.steps:
            return {}
        return {
            "predictions": self.predictions,
            "gradient_norm": self.gradient_norm,
            "clipped": self.clipped,
            **{f"loss_{direction}": loss for direction, loss in enumerate(self.losses)},
            "steps": self.steps,
            "seconds": self.seconds,
            "waited": self.waited,
        }


class _SavedSums(Section):
    predictions: float
    gradient_norm: float
    clipped: float
    loss_0: float
    loss_1: float | None = None  # a model of one direction has none
    steps: float
    seconds: float
    waited: float


def _read_sums(tree: Any) -> StepSums:
    if isinstance(tree, StepSums):
        return tree
    if tree == {}:
        return StepSums()
    saved = _SavedSums.model_validate(tree)
    return StepSums(
        losses=(saved.loss_0,) if saved.loss_1 is None else (saved.loss_0, saved.loss_1),
        **saved.model_dump(exclude={"loss_0", "loss_1"}),
    )


class RunRecord(Section):
    """The content of run.json."""

    version: int
    step: int
    settings: Settings
    changeable: Settings | None  # None in a record of an earlier version
    corpus: str  # its fingerprint
    progress: Progress
    meters: Annotated[StepSums, PlainValidator(_read_sums), PlainSerializer(StepSums.to_json)]

    @classmethod
    def of_run(cls, settings: RunSettings, progress: Progress, sums: StepSums) -> RunRecord:
        """Return the record of a run at its current step."""
        return cls(
            version=VERSION,
            step=progress.step,
            settings=settings.fixed,
            changeable=settings.changeable,
            corpus=settings.corpus,
            progress=progress,
            meters=sums,
        )

    @classmethod
    def read(cls, directory: Path) -> RunRecord:
        """Read the record of the checkpoint in `directory`."""
        path = directory / RUN_FILE
        tree = read_json(path, CheckpointError, MAX_RECORD_BYTES)
        version = tree.get("version") if isinstance(tree, dict) else VERSION
        if version == VERSION_WITHOUT_CHANGEABLE and isinstance(tree, dict):
            tree = tree | {"changeable": None}
        elif version != VERSION:
            raise CheckpointError(
                f"{path} has format version {version}; this version of bilm reads versions "
                f"{VERSION_WITHOUT_CHANGEABLE} and {VERSION}. Use the version of bilm that wrote it"
            )
        return cls.from_json(tree, str(path))

    @classmethod
    def from_json(cls, tree: Any, source: str) -> RunRecord:
        """Validate a record that was parsed from JSON; errors name `source`."""
        return parse_section(cls, tree, source, CheckpointError)

    def to_json(self) -> dict[str, Any]:
        """Return the record as a JSON object."""
        return self.model_dump(mode="json")

    def text(self) -> str:
        """Return the content of the file."""
        return json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n"

    def conflicts(self, settings: RunSettings) -> list[str]:
        """Return a line for each reason why a run with `settings` cannot resume from this one."""
        lines = []
        if self.corpus != settings.corpus:
            lines.append("data.corpus: its content differs from the checkpoint's")
        lines += differences(self.settings, settings.fixed)
        if self.changeable is not None and self.changeable.keys() != settings.changeable.keys():
            keys = ", ".join(sorted(self.changeable.keys() ^ settings.changeable.keys()))
            lines.append(f"{keys}: the checkpoint was written by another version of bilm")
        return lines

    def changes(self, settings: RunSettings) -> list[str]:
        """Return a line for each difference that the user must confirm."""
        return differences(self.changeable or {}, settings.changeable if self.changeable else {})

    def is_comparable(self, settings: RunSettings) -> bool:
        """Return whether evaluations with `settings` read the same text as those of this run.

        A run of an earlier version has evaluated the whole held-out split.
        """
        if self.changeable is None:
            return settings.changeable[EVALUATED_WORDS] is None
        return all(self.changeable[key] == settings.changeable[key] for key in EVALUATION_KEYS)
