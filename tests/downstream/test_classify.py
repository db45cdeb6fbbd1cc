from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bilm.errors import BilmError, CheckpointError
from downstream.classify import main
from tests.conftest import ROOT
from tests.downstream.order_task import order_texts, tiny_bilm, write_csv, write_vectors

FILES = {
    "results.json",
    "report.md",
    "errors.jsonl",
    "errors.html",
    "model_card.md",
    "confusion.png",
    "curves.png",
    "mix.png",
    "classifier.json",
    "head.safetensors",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a tiny model, texts and vectors; the tests share the cached representations."""
    directory = tmp_path_factory.mktemp("task")
    tiny_bilm().save_pretrained(directory / "model")
    write_csv(directory / "train.csv", order_texts(300, 1))
    write_csv(directory / "test.csv", order_texts(200, 2))
    write_csv(directory / "validation.csv", order_texts(60, 3))
    write_vectors(directory / "vectors.txt")
    return directory


def flags(place: Path, output: str, *more: str) -> list[str]:
    return [
        f"--model={place / 'model'}",
        f"--train={place / 'train.csv'}",
        f"--test={place / 'test.csv'}",
        f"--output={place / output}",
        *more,
    ]


def results(place: Path, output: str) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads((place / output / "results.json").read_text("utf-8"))
    return tree


def test_recurrent_head_learns_word_order(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--head", "bilstm", "--encoder-dim", "16", "--learning-rate", "0.02"]
    more += ["--epochs", "15", "--batch-size", "16"]
    main(flags(place, "bilstm", *more, "--mix", "trainable,none", *vectors(place), "--seeds", "2"))
    tree = results(place, "bilstm")
    assert {path.name for path in (place / "bilstm").iterdir()} == FILES
    for mix in ("trainable", "none"):
        assert tree["summary"][mix]["test"]["accuracy"]["mean"] > 0.95
    assert len(tree["outcomes"]) == 4
    assert tree["texts"] == {"train": 270, "validation": 30, "test": 200}
    assert tree["validation_texts_in_training"] == 0
    num_seen = tree["test_texts_in_training"]
    page = (place / "bilstm" / "report.md").read_text("utf-8")
    assert f"{num_seen:,} test texts and 0 validation texts also occur in the training" in page
    printed = capsys.readouterr().out
    assert "trainable" in printed
    assert "best by validation" in printed


def test_mean_pooling_learns_word_order_only_with_context(place: Path) -> None:
    more = ["--head", "mean", "--mix", "layer:0,top,learned", "--learning-rate", "0.01"]
    more += ["--epochs", "60", "--patience", "60", "--batch-size", "32"]
    main(flags(place, "mean", *more, "--validation", str(place / "validation.csv")))
    summary = results(place, "mean")["summary"]
    assert summary["layer:0"]["test"]["accuracy"]["mean"] < 0.6
    assert summary["top"]["test"]["accuracy"]["mean"] > 0.65
    assert summary["learned"]["test"]["accuracy"]["mean"] > 0.65
    assert results(place, "mean")["texts"]["validation"] == 60


def vectors(place: Path) -> list[str]:
    return ["--vectors", str(place / "vectors.txt")]


@pytest.mark.parametrize(
    "more",
    [
        ["--head", "mean_max", "--mix", "frozen,average", "--hidden-dim", "8"],
        ["--head", "max", "--mix", "frozen", "--mix-weights", "0,1,2"],
        ["--head", "attention", "--mix", "learned", "--mix-dim", "5"],
        ["--head", "gru", "--elmo-at", "both", "--encoder-dim", "4"],
    ],
)
def test_report_is_complete_for_all_heads(place: Path, more: list[str]) -> None:
    main(flags(place, "shapes", *more, *vectors(place), "--epochs", "2", "--overwrite"))
    assert {path.name for path in (place / "shapes").iterdir()} == FILES
    page = (place / "shapes" / "report.md").read_text("utf-8")
    for name in ("confusion.png", "curves.png", "mix.png"):
        assert f"]({name})" in page
        assert (place / "shapes" / name).read_bytes().startswith(b"\x89PNG")
    outcome = results(place, "shapes")["outcomes"][0]
    confusion = outcome["scores"]["test"]["confusion"]
    right = sum(confusion[i][i] for i in range(2))
    assert outcome["scores"]["test"]["accuracy"] == pytest.approx(right / 200)


def test_same_settings_give_the_same_results(place: Path) -> None:
    more = ["--head", "attention", "--epochs", "3"]
    main(flags(place, "one", *more))
    main(flags(place, "two", *more))
    outcomes = [results(place, name)["outcomes"] for name in ("one", "two")]
    for outcome in (*outcomes[0], *outcomes[1]):
        outcome.pop("seconds")
    assert outcomes[0] == outcomes[1]


def test_report_lists_texts_with_a_wrong_class(place: Path) -> None:
    rows = [("down" if label == "up" else "up", text) for label, text in order_texts(40, 5)]
    path = write_csv(place / "flipped.csv", rows)
    main(flags(place, "wrong", f"--test={path}", "--epochs=2"))
    scores = results(place, "wrong")["outcomes"][0]["scores"]["test"]
    lines = (place / "wrong" / "errors.jsonl").read_text("utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    assert len(records) == round(40 * (1 - scores["accuracy"])) > 0
    page = (place / "wrong" / "report.md").read_text("utf-8")
    html = (place / "wrong" / "errors.html").read_text("utf-8")
    assert html.count("<article>") == len(records)
    for record in records:
        number = int(record["place"].removeprefix(f"{path}, line "))
        assert (record["label"], record["text"]) == rows[number - 2]
        assert record["predicted"] == ("down" if record["label"] == "up" else "up")
        assert record["probability"] >= 0.5
        assert record["text"] in html
    assert f"{len(records)} texts have a wrong prediction" in page
    assert f"- {records[0]['text']}  \n  {records[0]['label']}, predicted: " in page


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--label-column", "lable"], "has no column 'lable'"),
        (["--text-columns", "text,title"], "has no column 'title'"),
        (["--mix", "layer:3"], "the model has 3 layers"),
        (["--mix", "frozen", "--mix-weights", "1,2"], "has 2 numbers"),
        (["--model", "nowhere"], "nowhere is neither a run"),
        (["--train", "nowhere.csv"], "cannot read nowhere.csv: No such file"),
        (["--vectors", "nowhere.txt"], "cannot read nowhere.txt: No such file"),
        (["--vectors", "{place}/test.csv"], "test.csv, line 1 is not a word and its numbers"),
        (["--output", "{place}/train.csv/report"], "train.csv is not a directory"),
        (["--finetune", "--mix", "layer:3"], "the model has 3 layers"),
    ],
)
def test_rejects_invalid_settings_before_the_bilm_reads(
    place: Path, more: list[str], message: str, tmp_path: Path
) -> None:
    more = [flag.format(place=place) for flag in more]
    with pytest.raises(BilmError, match=message):
        main([*flags(place, "mistake", "--cache", str(tmp_path / "cache")), *more])
    assert not (place / "mistake").exists()
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("flag", "rows", "message"),
    [
        (
            "--test",
            [("up", "a b"), ("sideways", "c")],
            r"odd\.csv, line 3: the label 'sideways' does",
        ),
        (
            "--validation",
            [("up", "a b"), ("sideways", "c")],
            r"odd\.csv, line 3: the label 'sideways' does",
        ),
        ("--train", [("up", "a b"), ("up", "c")], "only one class"),
        ("--train", [("up", "a b"), ("down", "c")], r"odd\.csv: no text can be used for valid"),
        ("--test", [("up", "a b"), ("down", " ")], "line 3: the text is empty"),
        ("--test", [], "has no rows"),
    ],
)
def test_rejects_invalid_texts_before_the_bilm_reads(
    place: Path, flag: str, rows: list[tuple[str, str]], message: str, tmp_path: Path
) -> None:
    path = write_csv(tmp_path / "odd.csv", rows)
    with pytest.raises(BilmError, match=message):
        main([*flags(place, "mistake", "--cache", str(tmp_path / "cache")), flag, str(path)])
    assert not (place / "mistake").exists()
    assert not (tmp_path / "cache").exists()


def test_keeps_existing_directory(place: Path) -> None:
    (place / "mine").mkdir()
    (place / "mine" / "notes.txt").write_text("keep", "utf-8")
    with pytest.raises(CheckpointError, match="already exists"):
        main(flags(place, "mine"))
    with pytest.raises(CheckpointError, match="is not a bilm-report directory"):
        main(flags(place, "mine", "--overwrite"))
    assert (place / "mine" / "notes.txt").read_text("utf-8") == "keep"


def test_rejects_cache_of_another_model(place: Path, tmp_path: Path) -> None:
    main(flags(place, "cached", "--cache", str(tmp_path), "--epochs", "1"))
    (store, *_) = [path for path in tmp_path.iterdir() if path.name.startswith("pooled")]
    tree = json.loads((store / "store.json").read_text("utf-8"))
    (store / "store.json").write_text(json.dumps({**tree, "model": "f" * 64}), "utf-8")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "downstream.classify",
            *flags(place, "again", "--cache", str(tmp_path)),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 2
    assert "made with a different model" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (place / "again").exists()


@pytest.mark.parametrize("target", ["class", "multilabel", "regression"])
def test_test_labels_do_not_influence_the_head(place: Path, tmp_path: Path, target: str) -> None:
    """One of two heads is chosen and written; the choice must not depend on them either."""
    names = ("1.5", "2.5") if target == "regression" else ("up", "down")
    first = {"up": names[0], "down": names[1]}
    second = {"up": names[1], "down": names[0]}
    train = [(first[label], text) for label, text in order_texts(300, 1)]
    more = ["--mix=trainable,top", "--epochs=2", f"--target={target}"]
    more += [f"--train={write_csv(tmp_path / 'train.csv', train)}", f"--cache={tmp_path / 'cache'}"]
    heads = []
    for name, label_of in (("with", first), ("without", second)):
        test = [(label_of[label], text) for label, text in order_texts(200, 2)]
        path = write_csv(tmp_path / f"{name}.csv", test)
        output = tmp_path / f"out_{name}"
        main(flags(place, "unused", *more, f"--test={path}", f"--output={output}"))
        heads.append((output / "head.safetensors").read_bytes())
    assert heads[0] == heads[1]
