from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from downstream.analyses.nearest_senses import MOST_FREQUENT
from downstream.analyses.senses import main
from downstream.reports.pages import Page
from tests.conftest import ROOT
from tests.downstream.analysis_results import analysis_results
from tests.downstream.sense_task import instance, sense_rows, write_rows
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


def test_plot_has_the_mean_of_the_layers_apart_from_the_line(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages: list[Page] = []
    monkeypatch.setattr(
        "downstream.analyses.senses.write_page", lambda _, kind, page, overwrite: pages.append(page)
    )
    main(flags(place, "plot", "first.jsonl", "second.jsonl"))
    figure = pages[0].pictures["senses.png"]
    (axis,) = figure.axes
    drawn = [list(line.get_xdata()) for line in axis.get_lines() if line.get_marker() != "None"]
    last = axis.get_xticks()[-1]
    lines, marks = drawn[::2], drawn[1::2]
    assert len(lines) == len(marks) == 3
    assert all(places == list(range(len(places))) for places in lines)
    assert all(places == [last] and last > len(lines[0]) for places in marks)
    figure.canvas.draw()
    box = axis.get_window_extent()
    for label in axis.get_xticklabels():
        extent = label.get_window_extent()
        assert box.x0 <= extent.x0
        assert extent.x1 <= box.x1


def test_writes_errors_of_the_best_vectors(place: Path) -> None:
    unknown = {
        "tokens": ["a", "<i>", "new_york", "bank"],
        "instances": [instance(2, 2, "new_york", ["new%1", "new%2"])],
    }
    write_rows(place / "unknown.jsonl", [*sense_rows(40, 1), unknown])
    main(flags(place, "errors", "unknown.jsonl", "second.jsonl"))
    tree = analysis_results(place / "errors", "senses.png")
    best = tree["best_vectors"]
    scores = tree["scores"]["all"]
    assert scores[best]["f1"] == max(s["f1"] for n, s in scores.items() if n != MOST_FREQUENT)
    lines = (place / "errors" / "errors.jsonl").read_text("utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    assert len(records) == scores[best]["instances"] - scores[best]["correct"]
    assert all(record["predicted"] not in record["keys"] for record in records)
    (record,) = (r for r in records if r["lemma"] == "new_york")
    assert record == {
        "place": f"{place / 'unknown.jsonl'}, line 41",
        "words": ["a", "<i>", "new", "york", "bank"],
        "start": 2,
        "end": 4,
        "instance": "new york",
        "lemma": "new_york",
        "pos": "NOUN",
        "keys": ["new%1", "new%2"],
        "predicted": None,
        "sense_in_training": False,
    }
    report = (place / "errors" / "report.md").read_text("utf-8")
    assert f"{len(records)} of {scores[best]['instances']} instances have a wrong answer" in report
    assert "[errors.html](errors.html)" in report
    page = (place / "errors" / "errors.html").read_text("utf-8")
    assert '<p dir="auto">a &lt;i&gt; <mark class="wrong">new york</mark> bank</p>' in page
    assert "<p>new_york (NOUN): true new%1 or new%2, no answer</p>" in page


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
