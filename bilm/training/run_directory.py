"""The directory of a run: who may write there, and whether its checkpoint is of this very run."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bilm.corpus.reader import Corpus
from bilm.distributed.ranks import Cluster
from bilm.errors import CheckpointError
from bilm.files.writing import exclusive_lock, write_text
from bilm.training.checkpoints import Checkpoint, CheckpointStore
from bilm.training.config import CONFIG_FILE, Config

logger = logging.getLogger(__name__)

RUN_FILES = (CONFIG_FILE, "checkpoints", "metrics.jsonl")

# What decides a run's words and weights: a checkpoint is of no use to another choice of these, and
# keeps them alone; the rest of a configuration may change from start to start.
FIXED_KEYS = (
    "model",
    "data.unroll_steps",
    "train.seed",
    "train.init_from",
    "train.optimizer.name",
    "train.optimizer.initial_accumulator",
    "deepspeed.train_batch_size",
)


@contextmanager
def locked(directory: Path, cluster: Cluster) -> Iterator[None]:
    """Keep a second run out of the directory for as long as this one lasts."""
    message = f"another process is training in {directory}; wait for it, or use another "
    message += "train.output_dir"
    with ExitStack() as stack:
        with cluster.together():
            if cluster.is_first:
                try:
                    directory.mkdir(parents=True, exist_ok=True)
                    lock = exclusive_lock(directory / "lock", CheckpointError, message)
                    stack.enter_context(lock)
                except OSError as e:
                    raise CheckpointError(f"cannot use {directory}: {e.strerror}") from None
        yield


def open_run(
    directory: Path,
    store: CheckpointStore,
    config: Config,
    corpus: Corpus,
    cluster: Cluster,
    fresh: bool,
) -> Checkpoint | None:
    """Rank 0's newest checkpoint, if this is a run to go on with; None for a new one."""
    checkpoint = None
    with cluster.together():
        if cluster.is_first:
            if fresh and any((directory / name).exists() for name in RUN_FILES):
                raise CheckpointError(
                    f"{directory} holds a run already, and --fresh is not to overwrite one; choose "
                    "another train.output_dir, or leave --fresh out to resume"
                )
            checkpoint = store.newest()
            if checkpoint is not None:
                _check_same_run(checkpoint, config, corpus)
                logger.info("resuming from %s", checkpoint.path)
    return checkpoint


def write_config(directory: Path, config: Config, cluster: Cluster) -> None:
    """Keep the configuration, defaults and overrides filled in, with the run."""
    with cluster.together():
        if cluster.is_first:
            write_text(directory / CONFIG_FILE, config.model_dump_json(indent=2) + "\n")


def deciding_settings(config: Config) -> dict[str, Any]:
    """What of a configuration a checkpoint keeps, by key."""
    tree = config.model_dump(mode="json")
    return {path: _look_up(tree, path) for path in FIXED_KEYS}


def _check_same_run(checkpoint: Checkpoint, config: Config, corpus: Corpus) -> None:
    differing = []
    if checkpoint.run.get("corpus") != corpus.fingerprint:
        differing.append("data.corpus: its content is another than the checkpoint's")
    old, new = checkpoint.run.get("settings"), deciding_settings(config)
    if not isinstance(old, dict) or set(old) != set(new):
        raise CheckpointError(
            f"{checkpoint.path} does not state {', '.join(FIXED_KEYS)}: it was written by another "
            "version of this program; use that one"
        )
    for path, now in new.items():
        if old[path] != now:
            differing.append(f"{path}: {old[path]} in the checkpoint, {now} now")
    if differing:
        raise CheckpointError(
            f"{checkpoint.path} is of another run:\n  " + "\n  ".join(differing) + "\nput these "
            "back, or train into another output_dir (train.init_from takes the weights along)"
        )


def _look_up(tree: Any, path: str) -> Any:
    for key in path.split("."):
        tree = tree[key]
    return tree
