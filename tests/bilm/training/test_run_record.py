from __future__ import annotations

import json
import math
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
    fixed_settings,
)
from tests.bilm.training.records import record_of
from tests.conftest import ROOT

BIG = ROOT / "configs" / "big.json"


def test_text_matches_stored_format() -> None:
    tree = json.loads(record_of(4).text())
    assert list(tree) == ["version", "step", "settings", "corpus", "progress", "meters"]
    assert tree["version"] == 2
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


@pytest.mark.parametrize("key", ["version", "step", "settings", "corpus", "progress", "meters"])
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


def test_names_differing_settings() -> None:
    config = load_config(BIG)
    record = RunRecord.of_run(config, "abc", NO_PROGRESS, StepSums())
    assert record.version == VERSION
    assert record.differences(config, "abc") == []
    changed = load_config(BIG, ["train.seed=5", "train.max_steps=3"])
    assert record.differences(changed, "def") == [
        "data.corpus: its content differs from the checkpoint's",
        "train.seed: 0 in the checkpoint, 5 now",
    ]
    settings = fixed_settings(config)
    del settings["model"]
    older = record.model_copy(update={"settings": settings})
    assert older.differences(config, "abc") == [
        "model: the checkpoint was written by another version of bilm"
    ]
