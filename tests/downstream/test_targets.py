"""`downstream.classify --target multilabel` and `--target regression`, and their predictors."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bilm.errors import CheckpointError
from downstream import TextClassifier, TextLabeler, TextRegressor
from downstream.classify import main as classify
from downstream.heads.saved_head import Description
from downstream.predict import main as predict
from downstream.reports.pages import plain_numbers
from tests.conftest import ROOT
from tests.downstream.order_task import write_csv
from tests.downstream.target_task import label_texts, make_target_place, number_texts, target_flags

FILES = {"results.json", "report.md", "model_card.md", "curves.png", "mix.png"}
FILES |= {"classifier.json", "head.safetensors", "errors.jsonl"}
LABEL_TEST, NUMBER_TEST = label_texts(60, 2), number_texts(60, 2)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("targets")
    make_target_place(directory)
    for target, more in (("multilabel", ["--threshold=validation"]), ("regression", [])):
        classify(target_flags(directory, target, f"--output={directory / target}", *more))
    return directory


def results(place: Path, output: str) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads((place / output / "results.json").read_text("utf-8"))
    return tree


def test_reports_labels(place: Path) -> None:
    tree = results(place, "multilabel")
    assert tree["settings"]["mix"]["dropout"] == 0.1
    assert {path.name for path in (place / "multilabel").iterdir()} == FILES | {
        "labels.png",
        "errors.html",
    }
    assert tree["labels"] == ["money", "river", "sport"]
    assert tree["texts"] == {"train": 270, "validation": 30, "test": 60}
    scores = tree["outcomes"][0]["scores"]["test"]
    assert scores["micro_f1"] > 0.9
    assert set(scores["by_label"]) == set(tree["labels"])
    page = (place / "multilabel" / "report.md").read_text("utf-8")
    assert "](labels.png)" in page
    assert "| river" in page
    assert "(chosen on the validation texts)" in page
    assert "TextLabeler" in (place / "multilabel" / "model_card.md").read_text("utf-8")


def test_reports_numbers(place: Path) -> None:
    tree = results(place, "regression")
    assert tree["settings"]["mix"]["dropout"] == 0
    assert {path.name for path in (place / "regression").iterdir()} == FILES | {"numbers.png"}
    scores = tree["outcomes"][0]["scores"]["test"]
    assert scores["r2"] > 0.8
    assert scores["pearson"] > 0.9
    assert scores["rmse"] < 0.8
    page = (place / "regression" / "report.md").read_text("utf-8")
    assert "](numbers.png)" in page
    row = next(line for line in page.splitlines() if line.startswith("| test "))
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    figures = [100 * scores[name] for name in ("r2", "pearson", "spearman")]
    figures += [scores["rmse"], scores["mae"]]
    assert [float(cell) for cell in cells[1:]] == pytest.approx(figures, rel=1e-3)


def errors_of(place: Path, output: str) -> list[dict[str, Any]]:
    lines = (place / output / "errors.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_errors_are_the_texts_with_wrong_labels(place: Path) -> None:
    rows = [("river" if i % 3 else labels, text) for i, (labels, text) in enumerate(LABEL_TEST)]
    path = write_csv(place / "changed.csv", rows)
    classify(target_flags(place, "multilabel", f"--output={place / 'changed'}", f"--test={path}"))
    predicted = TextLabeler.from_pretrained(place / "changed").predict([text for _, text in rows])
    expected = []
    for number, ((labels, text), found) in enumerate(zip(rows, predicted, strict=True), 2):
        truth, chosen = set(filter(None, labels.split("|"))), set(found)
        if truth != chosen:
            parts = (truth - chosen, chosen - truth, truth & chosen)
            expected.append((f"{path}, line {number}", text, *parts))
    records = errors_of(place, "changed")
    assert len(records) > 20
    assert expected == [
        (r["place"], r["text"], set(r["missed"]), set(r["wrong"]), set(r["right"])) for r in records
    ]
    assert all(p < 0.5 for record in records for p in record["missed"].values())
    assert all(p >= 0.5 for record in records for p in record["wrong"].values())


def test_largest_errors_of_numbers_come_first(place: Path) -> None:
    predicted = TextRegressor.from_pretrained(place / "regression").predict(
        [text for _, text in NUMBER_TEST]
    )
    residuals = predicted - np.array([float(number) for number, _ in NUMBER_TEST])
    records = errors_of(place, "regression")
    found = [record["residual"] for record in records]
    assert sorted(found) == pytest.approx(sorted(residuals.tolist()), abs=1e-3)
    assert [abs(x) for x in found] == sorted(map(abs, found), reverse=True)
    for record in records:
        row = int(record["place"].rpartition(" ")[2]) - 2
        assert (f"{record['number']}", record["text"]) == NUMBER_TEST[row]
    page = (place / "regression" / "report.md").read_text("utf-8")
    assert "## Largest errors (test)" in page
    numbers = plain_numbers([records[0]["number"], records[0]["predicted"]], digits=3)
    assert f"- {records[0]['text']}  \n  {', predicted: '.join(numbers)}" in page


def test_predicted_labels_agree_with_the_report(place: Path) -> None:
    labeler = TextLabeler.from_pretrained(place / "multilabel")
    tree = results(place, "multilabel")
    assert labeler.threshold == pytest.approx(tree["threshold"])
    assert labeler.labels == ("money", "river", "sport")
    texts = [text for _, text in LABEL_TEST]
    predicted = labeler.predict(texts)
    gold = [set(filter(None, labels.split("|"))) for labels, _ in LABEL_TEST]
    exact = sum(set(p) == g for p, g in zip(predicted, gold, strict=True)) / 60
    assert exact == pytest.approx(tree["outcomes"][0]["scores"]["test"]["exact"])
    probabilities = labeler.predict_proba(texts)
    assert probabilities.shape == (60, 3)
    assert predicted[0] == [
        name
        for name, p in zip(labeler.labels, probabilities[0], strict=True)
        if p >= labeler.threshold
    ]
    assert labeler.predict([]) == []
    assert labeler.predict(iter(texts)) == predicted


def test_predicted_numbers_agree_with_the_report(place: Path) -> None:
    regressor = TextRegressor.from_pretrained(place / "regression")
    predicted = regressor.predict([text for _, text in NUMBER_TEST])
    errors = predicted - np.array([float(number) for number, _ in NUMBER_TEST])
    rmse = results(place, "regression")["outcomes"][0]["scores"]["test"]["rmse"]
    assert np.sqrt((errors**2).mean()) == pytest.approx(rmse, rel=1e-3)
    assert regressor.predict([]).shape == (0,)
    again = regressor.predict(text for _, text in NUMBER_TEST)  # any iterable
    np.testing.assert_array_equal(again, predicted)
    with pytest.raises(TypeError, match="text 2 of 2 is None; expected a string"):
        regressor.predict(["a", None])  # type: ignore[list-item]


def test_each_target_has_its_own_predictor(place: Path) -> None:
    with pytest.raises(CheckpointError, match=r"multilabel; use downstream\.TextLabeler"):
        TextClassifier.from_pretrained(place / "multilabel")
    with pytest.raises(CheckpointError, match=r"regression; use downstream\.TextRegressor"):
        TextLabeler.from_pretrained(place / "regression")


@pytest.mark.parametrize("target", ["multilabel", "regression"])
def test_predict_reads_standard_input(place: Path, target: str) -> None:
    rows = LABEL_TEST if target == "multilabel" else NUMBER_TEST
    texts = [text for _, text in rows[:5]]
    command = [sys.executable, "-m", "bilm", "tasks", "predict", "--head", str(place / target)]
    done = subprocess.run(
        [*command, "--input", "-", "--output", "-"],
        input="\n".join(texts) + "\n",
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    records = [json.loads(line) for line in done.stdout.splitlines()]
    predict_file = ["--head", str(place / target), "--output", str(place / f"{target}.csv")]
    predict([*predict_file, "--input", str(write_csv(place / "five.csv", rows[:5]))])
    content = (place / f"{target}.csv").read_text("utf-8")
    table = list(csv.DictReader(io.StringIO(content)))
    if target == "regression":
        expected = TextRegressor.from_pretrained(place / target).predict(texts).tolist()
        assert [record["prediction"] for record in records] == pytest.approx(expected, rel=1e-5)
        assert [float(row["prediction"]) for row in table] == pytest.approx(expected, rel=1e-5)
    else:
        labels = TextLabeler.from_pretrained(place / target).predict(texts)
        assert [record["labels"] for record in records] == labels
        assert [row["labels"] for row in table] == ["|".join(found) for found in labels]
        assert float(table[0]["p(river)"]) == pytest.approx(records[0]["probabilities"]["river"])


def test_heads_of_earlier_versions_have_classes_and_cut_texts(place: Path) -> None:
    tree = json.loads((place / "multilabel" / "classifier.json").read_text("utf-8"))
    assert (tree["long_texts"], tree["target"]["kind"]) == ("windows", "multilabel")
    (place / "old").mkdir()
    old = {key: tree[key] for key in tree.keys() - {"long_texts", "target"}}
    (place / "old" / "classifier.json").write_text(json.dumps(old), encoding="utf-8")
    description = Description.read(place / "old")
    assert description.target.kind == "class"
    assert description.reading.max_text_words == description.max_words == 400


@pytest.mark.parametrize("head", ["mean_max", "bilstm"])
def test_windows_reach_the_head(place: Path, head: str) -> None:
    """The class depends on the last word of texts that are longer than a window."""
    rng = np.random.default_rng(0)
    rows = [
        (label, " ".join([*map(str, rng.choice(["the", "a", "near"], 9)), label]))
        for label in ("boat", "loan") * 30
    ]
    write_csv(place / "long.csv", rows)
    common = [f"--model={place / 'model'}", f"--cache={place / 'cache'}", f"--head={head}"]
    common += [f"--train={place / 'long.csv'}", f"--test={place / 'long.csv'}", "--max-words=4"]
    common += [f"--vectors={place / 'vectors.txt'}", "--encoder-dim=8", "--dropout=0"]
    accuracy = {}
    for long_texts in ("windows", "cut"):
        output = place / f"{head}-{long_texts}"
        flags = [f"--output={output}", f"--long-texts={long_texts}", "--learning-rate=0.03"]
        classify([*common, *flags, "--epochs=8", "--patience=8"])
        scores = results(place, output.name)["outcomes"][0]["scores"]
        accuracy[long_texts] = scores["test"]["accuracy"]
        predicted = TextClassifier.from_pretrained(output).predict([text for _, text in rows])
        right = sum(p == label for p, (label, _) in zip(predicted, rows, strict=True))
        assert right / 60 == pytest.approx(accuracy[long_texts])
    assert accuracy["windows"] == 1.0
    assert accuracy["cut"] < 0.8
