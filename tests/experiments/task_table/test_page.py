"""The tables of the tasks, written from results."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from experiments.stages import Done
from experiments.task_table import page
from experiments.task_table.adapted import AG_NEWS, REUTERS, news_lines
from experiments.task_table.heads import Heads, Places, Runner, all_heads
from experiments.task_table.outcomes import epochs_to_reach, is_recorded, write_record
from experiments.task_table.plan import (
    ADAPTED,
    AT_INPUT,
    BASELINE,
    MIN_STEPS,
    SHARES,
    TASKS,
    VARIANTS,
)
from tests.conftest import ROOT

NER = next(plan for plan in TASKS if plan.name == "ner")
MARKERS = (
    "tasks",
    "task_places",
    "task_epochs",
    "task_costs",
    "task_shares",
    "task_adaptation",
    "task_settings",
    "task_predictions",
)


def outcome(test: float, validation: list[float], places: list[str]) -> dict[str, Any]:
    best = max(validation)
    return {
        "scores": {"test": {"main": test}, "validation": {"main": best}},
        "history": {
            "validation_accuracy": validation,
            "best_epoch": validation.index(best) + 1,
        },
        "shares": {place: [0.5, 0.3, 0.2] for place in places},
        "seconds": 10.0,
    }


def write_heads(work: Path, heads: Heads, outcomes: list[dict[str, Any]]) -> None:
    """Write the report of a command, and its record."""
    (work / heads.name).mkdir()
    (work / heads.name / "results.json").write_text(json.dumps({"outcomes": outcomes}))
    done = Done(heads.name, [], 90.0, 1.5, "", {}, processor_seconds=60.0)
    write_record(work / f"{heads.name}.json", ["python"], done, work / heads.name)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(page, "PAGE", tmp_path / "tasks.md")
    monkeypatch.setattr(page, "PICTURE", tmp_path / "mixes.png")
    marks = [f"before {name}\n<!-- figures: {name} -->\nold\n<!-- end -->\n" for name in MARKERS]
    (tmp_path / "tasks.md").write_text("\n".join(marks))
    return tmp_path


def write_ner(work: Path) -> None:
    base = [outcome(0.80, [0.5, 0.7, 0.8], []), outcome(0.84, [0.5, 0.8, 0.7], [])]
    write_heads(work, Heads(NER, BASELINE), base)
    for variant, gain in (("input", 0.05), ("output", 0.01), ("both", 0.03)):
        places = ["input", "output"] if variant == "both" else [variant]
        elmo = [outcome(s + gain, [0.7, 0.8 + gain], places) for s in (0.80, 0.84)]
        write_heads(work, Heads(NER, variant), elmo)
    for share, score in zip(SHARES, (0.2, 0.5), strict=True):
        write_heads(work, Heads(NER, BASELINE, share), [outcome(score, [0.1], [])])


def rows(text: str, name: str) -> list[list[str]]:
    part = text.partition(f"<!-- figures: {name} -->")[2].partition("<!-- end -->")[0]
    lines = [line for line in part.splitlines() if line.startswith("|") and "---" not in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_tables_contain_the_means_gains_and_epochs(work: Path) -> None:
    write_ner(work)
    page.write_page(work)
    text = (work / "tasks.md").read_text()
    assert "old" not in text
    assert text.count("before") == len(MARKERS)
    main = dict(zip(*rows(text, "tasks"), strict=True))
    assert main["baseline"].startswith("82.00")
    assert main["+ ELMo"].startswith("87.00")
    assert (main["gain"], main["errors removed"]) == ("+5.00", "27.8%")
    assert main["paper: baseline"] == "90.15 (CoNLL-2003)"
    places = dict(zip(*rows(text, "task_places"), strict=True))
    assert [places[v] for v in VARIANTS] == ["80.00", "85.00", "81.00", "83.00"]
    epochs = rows(text, "task_epochs")[1]
    assert epochs[1:] == ["2.5", "2.0", "2 of 2"]
    assert rows(text, "task_costs")[1][1:] == ["10 s", "10 s", "0.10 h", "1.5 GiB", "1.5 GiB"]
    assert "All commands together took 0.1 hours of processor time." in text
    few, elmo = rows(text, "task_shares")[1:]
    assert [cell.split()[0] for cell in few[2:]] == ["20.00", "50.00", "82.00"]
    assert elmo[2:4] == ["", ""]
    assert (work / "mixes.png").stat().st_size > 1000


def test_an_unfinished_task_is_left_out(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_heads(work, Heads(NER, BASELINE), [outcome(0.8, [0.5], [])])
    page.write_page(work)
    assert "old" in (work / "tasks.md").read_text()
    assert "ner: not finished" in capsys.readouterr().out


def test_places_that_are_not_measured_are_blank(work: Path) -> None:
    write_heads(work, Heads(NER, BASELINE), [outcome(0.8, [0.5], [])])
    write_heads(work, Heads(NER, AT_INPUT), [outcome(0.9, [0.6], ["input"])])
    page.write_page(work)
    text = (work / "tasks.md").read_text()
    assert rows(text, "tasks")[1][5] == "+10.00"
    places = dict(zip(*rows(text, "task_places"), strict=True))
    assert (places["input"], places["output"], places["both"]) == ("90.00", "", "")


def test_heads_differ_only_in_their_variant_and_share(tmp_path: Path) -> None:
    places = Places(tmp_path, tmp_path / "work", tmp_path / "records")
    runner = Runner(places, "english-small", jobs=1)
    base, elmo = (runner.command(Heads(NER, v)) for v in (BASELINE, AT_INPUT))
    differing = set(base) ^ set(elmo)
    outputs = {str(tmp_path / "work" / f"ner_{v}") for v in (BASELINE, AT_INPUT)}
    assert differing == {"none", "trainable", "--elmo-at", "input"} | outputs
    assert elmo[elmo.index("--seeds") + 1] == str(NER.seeds)
    few = runner.command(Heads(NER, BASELINE, 0.1))
    assert set(few) - set(base) == {
        "--train-share",
        "0.1",
        "--min-steps",
        str(MIN_STEPS),
        f"{places.work / 'ner_baseline_0.1'}",
    }
    other = runner.command(Heads(NER, "both"))
    assert other[other.index("--seeds") + 1] == "1"
    names = [heads.name for heads in all_heads(TASKS)]
    adapted = sum(plan.domain is not None for plan in TASKS)
    assert len(names) == len(set(names))
    assert len(names) == len(TASKS) * (len(VARIANTS) + 2 * len(SHARES)) + adapted


def test_heads_on_the_adapted_bilm_differ_only_in_the_model(tmp_path: Path) -> None:
    places = Places(tmp_path, tmp_path / "work", tmp_path / "records")
    runner = Runner(places, "english-small", jobs=1)
    usual, adapted = (runner.command(Heads(NER, v)) for v in (AT_INPUT, ADAPTED))
    differing = [pair for pair in zip(usual, adapted, strict=True) if len(set(pair)) > 1]
    model = str(tmp_path / "work/english_newswire/best")
    outputs = tuple(str(tmp_path / "work" / f"ner_{v}") for v in (AT_INPUT, ADAPTED))
    assert differing == [("english-small", model), outputs]


def test_text_of_the_adapted_bilm_has_no_test_sentences(tmp_path: Path) -> None:
    directory = tmp_path / "tasks/ner_conll2003"
    for path in (directory, tmp_path / "lm", tmp_path / "ag_news"):
        path.mkdir(parents=True)
    for name in ("train", "dev", "test"):
        with gzip.open(directory / f"{name}.tsv.gz", "wt", encoding="utf-8") as file:
            file.write(f"The\tO\n{name}\tB-LOC\n\nIt\tO\n")
    with gzip.open(tmp_path / REUTERS, "wt", encoding="utf-8") as file:
        file.write("A wire <BP> said\n")
    with gzip.open(tmp_path / AG_NEWS, "wt", encoding="utf-8") as file:
        file.write('"3","Title","Half\\of\nit"\n')
    sentences = ["The train", "It"]
    lines = list(news_lines(NER, tmp_path, tmp_path))
    assert lines == ["A wire <BP> said", "Title Half of it", *sentences, *sentences]


def test_a_recorded_command_is_not_run_again(tmp_path: Path) -> None:
    places = Places(tmp_path / "data", tmp_path / "work", tmp_path / "records")
    runner = Runner(places, "english-small", jobs=1)
    heads = Heads(NER, BASELINE)
    command = places.portable(runner.command(heads))
    assert not any(str(tmp_path) in word for word in command)
    places.work.mkdir()
    places.records.mkdir()
    write_heads(places.work, heads, [outcome(0.8, [0.5], [])])
    record = places.records / f"{heads.name}.json"
    assert not is_recorded(record, command)
    write_record(record, command, Done("", [], 1.0, 1.0, "", {}, 1.0), places.work / heads.name)
    assert is_recorded(record, command)
    assert not is_recorded(record, [*command, "--epochs", "1"])
    runner.run([heads])  # fails if it starts the command, whose data do not exist


def test_records_of_earlier_versions_have_no_processor_time(work: Path) -> None:
    write_ner(work)
    for path in work.glob("ner_*.json"):
        record = json.loads(path.read_text())
        del record["processor_seconds"]
        path.write_text(json.dumps(record))
    page.write_page(work)
    costs = rows((work / "tasks.md").read_text(), "task_costs")[1]
    assert costs[3] == "0.15 h"  # 6 commands of 90 s


def test_epochs_to_reach_a_score() -> None:
    assert epochs_to_reach([0.1, 0.3, 0.2], 0.25) == 2
    assert epochs_to_reach([0.1, 0.3], 0.4) is None


def test_page_agrees_with_the_stored_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = page.PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(page, "PAGE", tmp_path / "tasks.md")
    monkeypatch.setattr(page, "PICTURE", tmp_path / "mixes.png")
    (tmp_path / "tasks.md").write_text(stored, encoding="utf-8")
    page.write_page(ROOT / "docs/results/tasks")
    written = (tmp_path / "tasks.md").read_text(encoding="utf-8")
    versions = re.compile(r"Python [^ ]*, torch [^ ]*, [^ ]*\.")  # of the machine that wrote them
    assert versions.sub("", written) == versions.sub("", stored)


@pytest.mark.parametrize("heads", list(all_heads(TASKS)), ids=lambda heads: heads.name)
def test_stored_records_are_of_the_current_commands(heads: Heads, tmp_path: Path) -> None:
    places = Places(tmp_path / "data", tmp_path / "work", tmp_path)
    command = places.portable(Runner(places, "english-small", jobs=1).command(heads))
    assert is_recorded(ROOT / f"docs/results/tasks/{heads.name}.json", command)
