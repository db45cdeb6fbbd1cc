"""The settings that a checkpoint records, and the differences from those of a resumed run.

A setting is fixed, or it may change with `--allow-changes`, or it is not recorded and may always
change (logs, checkpoints, number of ranks, micro-batches).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from bilm.training.config import DECAYS_TO_LAST_STEP, Config

# The settings that determine the batches and the weights. A checkpoint can be resumed only with
# the same values.
FIXED_KEYS = (
    "model",
    "data.unroll_steps",
    "train.seed",
    "train.init_from",
    "train.optimizer.name",
    "train.optimizer.initial_accumulator",
    "deepspeed.train_batch_size",
)

# The settings that affect the following steps or the comparison of evaluations. They may change
# between two starts, but only if the user confirms it. The rest of a configuration may always
# change, and is not stored.
CHANGEABLE_KEYS = (
    "train.precision",
    "train.optimizer.learning_rate",
    "train.optimizer.epsilon",
    "train.optimizer.betas",
    "train.optimizer.weight_decay",
    "train.optimizer.warmup_steps",
    "train.optimizer.decay",
    "train.max_gradient_norm",
    "train.evaluation.rows",
    "deepspeed.communication_data_type",
)

SCHEDULE_STEPS = "number of steps (train.num_epochs, train.max_steps)"

EVALUATED_WORDS = "train.evaluation.max_words"

EVALUATION_KEYS = ("train.evaluation.rows", EVALUATED_WORDS)

Settings = dict[str, JsonValue]

_MISSING = object()


@dataclass(frozen=True)
class RunSettings:
    """The settings that a checkpoint records, by key, and the fingerprint of the corpus."""

    fixed: Settings
    changeable: Settings
    corpus: str


def settings_of_run(
    config: Config, fingerprint: str, num_steps: int, is_heldout_complete: bool
) -> RunSettings:
    """Return the settings to record.

    The number of steps is recorded only for a schedule that depends on it, and the limit on
    held-out words only if the split is larger.
    """
    tree = config.model_dump(mode="json")
    changeable = {path: _look_up(tree, path) for path in CHANGEABLE_KEYS}
    depends_on_end = config.train.optimizer.decay in DECAYS_TO_LAST_STEP
    changeable[SCHEDULE_STEPS] = num_steps if depends_on_end else None
    max_words = config.train.evaluation.max_words
    changeable[EVALUATED_WORDS] = None if is_heldout_complete else max_words
    return RunSettings({path: _look_up(tree, path) for path in FIXED_KEYS}, changeable, fingerprint)


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    """Return a line "key: old -> new" for each value that differs, in objects key by key."""
    if isinstance(old, dict) and isinstance(new, dict):
        lines = []
        for key in sorted(old.keys() | new.keys()):
            below = f"{path}.{key}" if path else key
            lines += differences(old.get(key, _MISSING), new.get(key, _MISSING), below)
        return lines
    if old == new:
        return []
    shown = ["not recorded" if value is _MISSING else json.dumps(value) for value in (old, new)]
    return [f"{path}: {shown[0]} -> {shown[1]}"]


def _look_up(tree: Any, path: str) -> Any:
    for key in path.split("."):
        tree = tree[key]
    return tree


def name_job(config: Config) -> str:
    """Return a digest of all settings but paths, which may differ between machines."""
    paths = {"data": {"corpus"}, "train": {"output_dir", "init_from"}}
    settings = config.model_dump(mode="json", exclude=paths)
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
