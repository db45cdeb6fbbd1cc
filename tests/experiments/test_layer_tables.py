"""The tables of the layers in docs/analyses.md, written from small reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bilm.errors import ConfigError
from experiments import layer_tables
from experiments.layer_tables import (
    LAYER_1,
    LAYER_2,
    PARTS_OF_SPEECH,
    PROBES,
    RECORDS,
    SENSE_BASELINE,
    SENSES,
    TAG_BASELINE,
    TEST_SETS,
    main,
    write_page,
    write_record,
)
from experiments.stages import Done

MARKERS = ("layer_scores", "sense_scores", "layer_facts")
DONE = Done("name", [], 90.0, 1.5, "", {}, processor_seconds=60.0)


def senses_report() -> dict[str, Any]:
    def scores(gain: float) -> dict[str, Any]:
        f1 = {SENSE_BASELINE: 0.6, LAYER_1: 0.5, LAYER_2: 0.5 + gain}
        return {name: {"precision": own, "recall": own, "f1": own} for name, own in f1.items()}

    gains = dict(zip(TEST_SETS, (0.1, 0.1, 0.1, -0.1, 0.0), strict=True))
    return {
        "train": {"file": "/data/train.jsonl", "senses": 7},
        "counts": {"all": {"instances": 200, "without_answer": 20}},
        "scores": {**{n: scores(gain) for n, gain in gains.items()}, "all": scores(0.05)},
        "by_pos": {name: scores(0.02) for name in PARTS_OF_SPEECH},
        "only_correct": {LAYER_1: {LAYER_2: 4}, LAYER_2: {LAYER_1: 9}},
    }


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the records of all commands, and a page with markers."""
    monkeypatch.setattr(layer_tables, "PAGE", tmp_path / "analyses.md")
    marks = [f"before\n<!-- figures: {name} -->\nold\n<!-- end -->\n" for name in MARKERS]
    (tmp_path / "analyses.md").write_text("\n".join(marks))
    reports: dict[str, dict[str, Any]] = {SENSES: senses_report()}
    for seed, name in enumerate(PROBES):
        accuracy = {TAG_BASELINE: 0.8, LAYER_1: 0.9 + seed / 100, LAYER_2: 0.85}
        scores = {n: {"accuracy": own, "confusion": [[1]]} for n, own in accuracy.items()}
        reports[name] = {"words": {"train": 5}, "seed": seed, "scores": scores}
    for name, report in reports.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "results.json").write_text(json.dumps(report))
        write_record(tmp_path / f"{name}.json", ["python"], DONE, tmp_path / name)
    return tmp_path


def test_writes_tables_and_facts(records: Path) -> None:
    write_page(records)
    text = (records / "analyses.md").read_text()
    assert "old" not in text
    assert text.count("before") == len(MARKERS)
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert ["layer 2", "85.00", "55.00"] in lines
    assert ["most frequent tag, most frequent sense", "80.00", "60.00"] in lines
    assert ["layer 2", *["60.00"] * 3, "40.00", "50.00", *["52.00"] * 4] in lines
    assert "better than layer 1 on 3 of 5 test sets" in text
    assert "only layer 2 is correct for 9 instances, and only layer 1 for 4" in text
    assert "90.00 and 85.00; 91.00 and 85.00; 92.00 and 85.00" in text
    assert "20 instances (10.0%)" in text
    assert "180 s for the probes of all seeds, and 60 s for senses" in text


def test_records_have_no_paths_and_no_confusion(records: Path) -> None:
    for name in (*PROBES, SENSES):
        text = (records / f"{name}.json").read_text()
        assert "confusion" not in text
        assert "/data/" not in text


def test_rejects_missing_records_and_data(records: Path, tmp_path: Path) -> None:
    (records / f"{SENSES}.json").unlink()
    with pytest.raises(ConfigError, match=r"senses.json does not exist; run this without"):
        main(["--data", str(tmp_path), "--records", str(records), "--write-only"])
    with pytest.raises(ConfigError, match="is not a directory"):
        main(["--data", str(tmp_path / "none"), "--records", str(records)])


def test_page_agrees_with_the_stored_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = layer_tables.PAGE.read_text("utf-8")
    (tmp_path / "analyses.md").write_text(text, "utf-8")
    monkeypatch.setattr(layer_tables, "PAGE", tmp_path / "analyses.md")
    write_page(RECORDS)
    assert (tmp_path / "analyses.md").read_text("utf-8") == text
