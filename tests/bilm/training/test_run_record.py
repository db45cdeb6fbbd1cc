from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bilm.errors import CheckpointError
from bilm.training.config import load_config
from bilm.training.run_record import (
    NO_PROGRESS,
    RUN_FILE,
    VERSION,
    RunRecord,
    StepSums,
)
from bilm.training.run_settings import RunSettings, settings_of_run
from tests.bilm.training.records import record_of
from tests.conftest import ROOT

BIG = ROOT / "configs" / "big.json"


def test_text_matches_stored_format() -> None:
    tree = json.loads(record_of(4).text())
    assert list(tree) == [
        "version",
        "step",
        "settings",
        "changeable",
        "corpus",
        "progress",
        "meters",
    ]
    assert tree["version"] == 3
    assert tree["meters"] == {
        "predictions": 3.0,
        "gradient_norm": 0.0,
        "clipped": 0.0,
        "loss_0": 4.1,
        "loss_1": 2.0,
        "steps": 1.0,
        "seconds": 0.0,
        "waited": 0.0,
    }


def test_reads_written_record(tmp_path: Path) -> None:
    for losses in ((), (1e-17 + 0.1,), (0.1 + 0.2, 1 / 3)):
        sums = StepSums(losses=losses, predictions=7.0, steps=float(bool(losses)))
        record = record_of(4).model_copy(update={"meters": sums if losses else StepSums()})
        (tmp_path / RUN_FILE).write_text(record.text())
        assert RunRecord.read(tmp_path) == record


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("version", 1, "has format version 1"),
        ("step", "4", "step: "),
        ("progress", {}, "progress.best_step: is missing"),
        ("meters", {"steps": 1.0}, "meters.loss_0: is missing"),
        ("meters", [], "meters: "),
        ("extra", 1, "extra: is not a known key"),
    ],
)
def test_rejects_invalid_records(key: str, value: Any, message: str, tmp_path: Path) -> None:
    tree = record_of(4).to_json() | {key: value}
    (tmp_path / RUN_FILE).write_text(json.dumps(tree))
    with pytest.raises(CheckpointError, match=message):
        RunRecord.read(tmp_path)


@pytest.mark.parametrize(
    "key", ["version", "step", "settings", "changeable", "corpus", "progress", "meters"]
)
def test_rejects_missing_keys(key: str, tmp_path: Path) -> None:
    tree = record_of(4).to_json()
    del tree[key]
    (tmp_path / RUN_FILE).write_text(json.dumps(tree))
    with pytest.raises(CheckpointError, match=key):
        RunRecord.read(tmp_path)


def test_rejects_nan() -> None:
    sums = StepSums(losses=(math.nan,), steps=1.0)
    record = record_of(1).model_copy(update={"meters": sums})
    with pytest.raises(ValueError, match="not JSON compliant"):
        record.text()


def test_progress_tracks_best_evaluation() -> None:
    progress = NO_PROGRESS
    for perplexity in (5.0, 7.0, 4.0, 4.0):
        progress = progress.after_step().after_evaluation(perplexity)
    assert (progress.step, progress.evaluated_step) == (4, 4)
    assert (progress.best_step, progress.best_perplexity) == (3, 4.0)
    assert progress.evaluations_since_best == 1


def test_adds_step_sums() -> None:
    one = StepSums(losses=(0.1, 1.0), predictions=2.0, steps=1.0, seconds=0.5)
    other = StepSums(losses=(0.2, 2.0), predictions=3.0, steps=1.0, waited=0.25)
    assert StepSums() + one == one
    assert one + other == StepSums(
        losses=(0.1 + 0.2, 3.0), predictions=5.0, steps=2.0, seconds=0.5, waited=0.25
    )
    assert StepSums().to_json() == {}


def test_reads_record_without_changeable_settings(tmp_path: Path) -> None:
    tree = record_of(4).to_json() | {"version": 2}
    del tree["changeable"]
    (tmp_path / RUN_FILE).write_text(json.dumps(tree))
    record = RunRecord.read(tmp_path)
    assert record.changeable is None
    assert record.changes(settings_of([])) == []
    assert record.is_comparable(settings_of([]))
    assert not record.is_comparable(settings_of([], is_heldout_complete=False))


def settings_of(
    overrides: list[str], num_steps: int = 10, is_heldout_complete: bool = True
) -> RunSettings:
    config = load_config(BIG, overrides)
    return settings_of_run(config, "abc", num_steps, is_heldout_complete)


def record_with(settings: RunSettings) -> RunRecord:
    return RunRecord.of_run(settings, NO_PROGRESS, StepSums())


def test_lists_only_conflicting_keys() -> None:
    record = record_with(settings_of([]))
    assert record.version == VERSION
    assert record.conflicts(settings_of(["train.max_steps=3"])) == []
    changed = settings_of(["train.seed=5", "model.lstm.dim=1024", "model.characters=null"])
    *others, characters = sorted(record.conflicts(replace(changed, corpus="def")), key=len)
    assert sorted(others) == [
        "data.corpus: its content differs from the checkpoint's",
        "model.lstm.dim: 4096 -> 1024",
        "train.seed: 0 -> 5",
    ]
    assert characters.startswith('model.characters: {"embedding_dim": 16')
    assert characters.endswith("-> null")


def test_rejects_records_with_other_keys() -> None:
    settings = settings_of([])
    for kind, key in (("settings", "model"), ("changeable", "train.precision")):
        tree = record_with(settings).to_json()
        del tree[kind][key]
        (line,) = RunRecord.from_json(tree, "run.json").conflicts(settings)
        assert line.startswith(key)


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("train.optimizer.learning_rate=2", "train.optimizer.learning_rate: 0.2 -> 2.0"),
        ("train.optimizer.decay=inverse_sqrt", 'train.optimizer.decay: "none" -> "inverse_sqrt"'),
        ("train.optimizer.warmup_steps=7", "train.optimizer.warmup_steps: 0 -> 7"),
        ("train.optimizer.epsilon=1", "train.optimizer.epsilon: 0.0 -> 1.0"),
        ("train.max_gradient_norm=null", "train.max_gradient_norm: 10.0 -> null"),
        ("train.precision=bfloat16", 'train.precision: "float32" -> "bfloat16"'),
        ("train.evaluation.rows=8", "train.evaluation.rows: 32 -> 8"),
    ],
)
def test_lists_changed_settings(override: str, line: str) -> None:
    record, changed = record_with(settings_of([])), settings_of([override])
    assert record.conflicts(changed) == []
    assert record.changes(changed) == [line]


@pytest.mark.parametrize(
    "override",
    [
        "train.log.every_steps=7",
        "train.checkpoints.every_steps=7",
        "train.evaluation.every_steps=7",
        "train.evaluation.patience=7",
        "train.output_dir=elsewhere",
        "train.max_steps=7",
        "deepspeed.gradient_accumulation_steps=2",
        "data.num_workers=2",
    ],
)
def test_other_settings_may_change(override: str) -> None:
    record, changed = record_with(settings_of([])), settings_of([override], num_steps=7)
    assert record.conflicts(changed) == record.changes(changed) == []


def test_lists_number_of_steps_if_schedule_depends_on_it() -> None:
    for decay, depends in (("linear", True), ("cosine", True), ("inverse_sqrt", False)):
        overrides = [f"train.optimizer.decay={decay}"]
        record, longer = record_with(settings_of(overrides)), settings_of(overrides, num_steps=20)
        lines = ["number of steps (train.num_epochs, train.max_steps): 10 -> 20"]
        assert record.changes(longer) == (lines if depends else [])


def test_limit_on_words_matters_only_if_split_is_larger() -> None:
    record = record_with(settings_of([]))
    limit = ["train.evaluation.max_words=50"]
    assert record.changes(settings_of(limit)) == []
    subset = settings_of(limit, is_heldout_complete=False)
    assert record.changes(subset) == ["train.evaluation.max_words: null -> 50"]
    assert not record.is_comparable(subset)
    assert record_with(subset).is_comparable(subset)
    assert not record.is_comparable(settings_of(["train.evaluation.rows=8"]))
    assert record.is_comparable(settings_of(["train.optimizer.learning_rate=2"]))
