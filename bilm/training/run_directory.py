"""The directory of a run: its lock, its configuration, and the model in it.

The best model and the checkpoints are in the subdirectories `BEST_MODEL_DIRECTORY` and
`CHECKPOINTS_DIRECTORY` of `bilm.pretrained.file_names`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from bilm.corpus.reader import Corpus
from bilm.distributed.ranks import Ranks
from bilm.errors import CheckpointError
from bilm.files.writing import exclusive_lock, write_text
from bilm.pretrained.file_names import (
    BEST_MODEL_DIRECTORY,
    CHECKPOINTS_DIRECTORY,
    METRICS_FILE,
)
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.training.checkpoints import WEIGHTS, Checkpoint, CheckpointStore
from bilm.training.config import Config, load_config
from bilm.training.run_settings import RunSettings

logger = logging.getLogger(__name__)

CONFIG_FILE = "config.json"

LOCK_FILE = "lock"

TENSORBOARD_DIRECTORY = "tensorboard"


@contextmanager
def lock_run(directory: Path, ranks: Ranks) -> Iterator[None]:
    """Create the directory and lock it, so that no second run can use it at the same time."""
    message = f"another process is training in {directory}; wait until it exits, or choose another "
    message += "train.output_dir"
    with ExitStack() as stack:
        with ranks.fail_together():
            if ranks.is_first:
                try:
                    directory.mkdir(parents=True, exist_ok=True)
                    lock = exclusive_lock(directory / LOCK_FILE, CheckpointError, message)
                    stack.enter_context(lock)
                except OSError as e:
                    raise CheckpointError(f"cannot use {directory}: {e.strerror}") from None
        yield


def find_checkpoint(
    directory: Path, settings: RunSettings, ranks: Ranks, fresh: bool, allow_changes: bool
) -> Checkpoint | None:
    """Return the checkpoint to resume from; None for a new run, and on all ranks but rank 0."""
    checkpoint = None
    with ranks.fail_together():
        if ranks.is_first:
            names = (CONFIG_FILE, CHECKPOINTS_DIRECTORY, METRICS_FILE)
            if fresh and any((directory / name).exists() for name in names):
                raise CheckpointError(
                    f"{directory} already contains a run, and --fresh does not overwrite one; "
                    "choose another train.output_dir, or omit --fresh to resume"
                )
            checkpoint = CheckpointStore(directory / CHECKPOINTS_DIRECTORY).newest()
            if checkpoint is not None:
                _check_settings(checkpoint, settings, allow_changes)
                checkpoint = _forget_other_evaluations(checkpoint, settings)
                logger.info("resuming from %s", checkpoint.path)
    return checkpoint


def write_config(config: Config, ranks: Ranks) -> None:
    """Write the configuration, including defaults and overrides, into the run's directory."""
    with ranks.fail_together():
        if ranks.is_first:
            path = Path(config.train.output_dir) / CONFIG_FILE
            write_text(path, config.model_dump_json(indent=2) + "\n")


def model_of_run(run: Path, which: str) -> PretrainedBiLm:
    """Return the "best" model of a run, or that of its "newest" intact checkpoint."""
    if which == "best":
        if not (run / BEST_MODEL_DIRECTORY).is_dir():
            raise CheckpointError(
                f"{run} has no best model yet, because no held-out evaluation has been done; use "
                "--which newest to export the latest checkpoint"
            )
        return PretrainedBiLm.from_pretrained(run / BEST_MODEL_DIRECTORY)
    checkpoint = CheckpointStore(run / CHECKPOINTS_DIRECTORY).newest()
    if checkpoint is None:
        raise CheckpointError(f"{run} has no checkpoint")
    config = load_config(run / CONFIG_FILE)
    corpus = Corpus.open(config.data.corpus)
    if corpus.fingerprint != checkpoint.record.corpus:
        raise CheckpointError(f"{corpus.path} is not the corpus that {run} was trained on")
    names = checkpoint.names(WEIGHTS)
    return PretrainedBiLm.from_weights(
        config.model,
        {name: checkpoint.tensor(WEIGHTS, name) for name in names},
        corpus.vocabulary,
        corpus.tokenizer(),
        f"the weights in {checkpoint.path / WEIGHTS}.safetensors",
    )


def _check_settings(checkpoint: Checkpoint, settings: RunSettings, allow_changes: bool) -> None:
    record = checkpoint.record
    conflicts = record.conflicts(settings)
    if conflicts:
        raise CheckpointError(
            f"{checkpoint.path} was written with different settings:\n  "
            + "\n  ".join(conflicts)
            + "\nRestore them, or choose another train.output_dir (train.init_from can start from "
            "these weights)"
        )
    if record.changeable is None:
        logger.warning(
            "%s was written by an earlier version, which did not record the learning rate and its "
            "schedule; make sure that they have not changed",
            checkpoint.path,
        )
    changes = "\n  ".join(record.changes(settings))
    if changes and not allow_changes:
        raise CheckpointError(
            f"these settings have changed since {checkpoint.path} was written:\n  {changes}\n"
            "Restore them, or pass --allow-changes to resume with the new values"
        )
    if changes:
        logger.warning("resuming with changed settings:\n  %s", changes)


def _forget_other_evaluations(checkpoint: Checkpoint, settings: RunSettings) -> Checkpoint:
    """Forget the best perplexity if the following evaluations read other text."""
    record = checkpoint.record
    if record.progress.best_step is None or record.is_comparable(settings):
        return checkpoint
    logger.warning(
        "the held-out text of evaluations has changed, so the best perplexity so far (%.2f) is not "
        "comparable with later ones; the next evaluation replaces the best model",
        record.progress.best_perplexity,
    )
    progress = record.progress.without_evaluations()
    return replace(checkpoint, record=record.model_copy(update={"progress": progress}))
