from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from downstream.analyses.senses import main
from tests.conftest import ROOT
from tests.downstream.analysis_results import analysis_results
from tests.downstream.sense_task import sense_rows, write_rows
from tests.downstream.topic_task import golden_bilm


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("senses")
    golden_bilm().save_pretrained(directory / "model")
    for seed, name in enumerate(("train", "first", "second")):
        write_rows(directory / f"{name}.jsonl", sense_rows(40, seed))
    return directory


def flags(place: Path, output: str, *tests: str) -> list[str]:
    files = ["--train", str(place / "train.jsonl"), "--test", *(str(place / t) for t in tests)]
    return ["--model", str(place / "model"), *files, "--output", str(place / output)]


def test_writes_scores_by_set_and_by_part_of_speech(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(flags(place, "page", "first.jsonl", "second.jsonl"))
    tree = analysis_results(place / "page", "senses.png")
    assert list(tree["scores"]) == ["first", "second", "all"]
    assert next(iter(tree["scores"]["all"])) == "most frequent sense"
    total = {name: scores["correct"] for name, scores in tree["scores"]["all"].items()}
    parts = [tree["scores"][part] for part in ("first", "second")]
    assert total == {name: sum(part[name]["correct"] for part in parts) for name in total}
    assert list(tree["by_pos"]) == ["NOUN"]
    assert tree["by_pos"]["NOUN"] == tree["scores"]["all"]
    assert tree["train"]["senses"] == 6
    report = (place / "page" / "report.md").read_text("utf-8")
    printed = capsys.readouterr().out
    for name in total:
        row = next(line for line in printed.splitlines() if line.startswith(f"| {name} "))
        assert row in report
        assert f"{100 * tree['scores']['all'][name]['f1']:.2f}" in row


def test_one_test_set_has_no_total(place: Path) -> None:
    main([*flags(place, "one", "first.jsonl"), "--cache", str(place / "representations")])
    assert list(analysis_results(place / "one", "senses.png")["scores"]) == ["first"]


def test_bad_line_exits_with_code_2_and_names_it(place: Path) -> None:
    text = (place / "first.jsonl").read_text("utf-8").splitlines()
    text[4] = text[4].replace('"start": 2', '"start": 20')
    (place / "bad.jsonl").write_text("\n".join(text) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "bilm", "tasks", "senses", *flags(place, "no", "bad.jsonl")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "bad.jsonl, line 5: the start of an instance is 20" in done.stderr
    assert not (place / "no").exists()
