"""The costs of predictions, measured with a small head."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from downstream.tag import main as tag
from experiments.task_table.heads import Heads, Places
from experiments.task_table.plan import AT_INPUT, TaskPlan
from experiments.task_table.predictions import (
    measure_predictions,
    predictions_table,
    record_path,
)
from tests.downstream.tag_task import make_tag_place, tag_flags


def plan(module: str, test: str) -> TaskPlan:
    return TaskPlan("own", "a small task", "F1", module, ("train", None, test), ())


def places(directory: Path) -> Places:
    (directory / "records").mkdir(exist_ok=True)
    return Places(directory, directory / "work", directory / "records")


@pytest.mark.slow
def test_predictions_of_a_head_are_measured_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, there = plan("downstream.tag", "test.tsv"), places(make_tag_place(tmp_path))
    head = f"work/{Heads(own, AT_INPUT).name}"
    (tmp_path / "work").mkdir()
    assert tag(tag_flags(tmp_path, head, "--mix=none", "--epochs=1")) == 0
    measure_predictions([own], there)
    record = json.loads(record_path(own, there.records).read_text())
    assert record["predictions"] == 40
    assert 0.05 < record["peak_memory_gib"] < 6
    assert not any(str(tmp_path) in word for word in record["command"])
    output = (tmp_path / "work/own_predictions.jsonl").read_text()
    predicted = [word["word"] for line in output.splitlines() for word in json.loads(line)["words"]]
    rows = (tmp_path / "test.tsv").read_text().split("\n")
    assert predicted == [row.split("\t")[0] for row in rows if row]
    header, row = predictions_table([own], there.records).splitlines()[::2]
    assert "peak memory" in header
    assert [cell.strip() for cell in row.split("|")][1:3] == ["a small task", "40"]
    capsys.readouterr()
    measure_predictions([own], there)
    assert capsys.readouterr().out == "own_predict: already recorded\n"


@pytest.mark.parametrize("module", ["downstream.tag", "downstream.srl", "downstream.coref"])
def test_a_task_without_a_head_is_not_measured(
    module: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, there = plan(module, "test"), places(tmp_path)
    measure_predictions([own], there)
    assert "own_predict: not measured, because" in capsys.readouterr().out
    assert not record_path(own, there.records).exists()
    assert predictions_table([own], there.records) == "No predictions have been measured."
