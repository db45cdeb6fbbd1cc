"""Train from Python: `bilm.train`. The command `bilm pretrain` calls the same function.

This module does not import torch, because the settings of the process must be made before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bilm.distributed.launchers import adopt_launcher
from bilm.distributed.process import configure_process
from bilm.extras import TRAINING, require
from bilm.files.sections import parse_section
from bilm.training.config import Config, load_config


@dataclass(frozen=True)
class TrainResult:
    """The state of a run at the end of `train`."""

    run_directory: Path
    best_model: Path | None  # None if no held-out evaluation has been done
    best_perplexity: float | None
    step: int
    is_finished: bool  # False if a signal has stopped the run, after saving a checkpoint


def train(
    config: Config | Mapping[str, Any] | Path | str,
    on_metrics: Callable[[dict[str, Any]], object] | None = None,
    *,
    fresh: bool = False,
    allow_changes: bool = False,
    verify: bool = False,
) -> TrainResult:
    """Train, or resume the run in `train.output_dir`, in this process.

    `config` is a configuration, a dictionary of its sections, a path, or the name of a shipped
    configuration. On rank 0, `on_metrics` is called with each record of metrics.jsonl as it is
    written. With `fresh`, an existing run is an error. Without `allow_changes`, so is a setting
    that affects the result and has changed since the run was saved. With `verify`, all files of
    the corpus are hashed, also those that have not changed since. The process is the only rank
    of the run, unless a launcher (`deepspeed`, `torchrun`, `srun` ...) has started it as one of
    several.
    """
    require("training", *TRAINING)
    if isinstance(config, Mapping):
        config = parse_section(Config, dict(config), "the configuration")
    elif not isinstance(config, Config):
        config = load_config(config)
    adopt_launcher()
    configure_process()
    from bilm.training.setup import run_to_end

    return run_to_end(config, on_metrics, fresh, allow_changes, verify)
