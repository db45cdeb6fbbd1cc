from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bilm.embedding.embedder import Embedder
from bilm.errors import BilmError, CheckpointError, ConfigError, CorpusError
from downstream import PairClassifier, Tagger
from downstream.pair import main
from downstream.predict import main as predict
from tests.conftest import ROOT
from tests.downstream.pair_task import make_pair_place, pair_flags, pairs, results, write_pairs

FILES = {
    "results.json",
    "report.md",
    "model_card.md",
    "curves.png",
    "mix.png",
    "confusion.png",
    "errors.jsonl",
    "errors.html",
    "pair_classifier.json",
    "head.safetensors",
}
TEST = pairs(40, 3)
NO_BILM = ["--mix=none", "--tokenized"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a classifier on a tiny biLM; the tests share the cached representations."""
    directory = make_pair_place(tmp_path_factory.mktemp("pair"))
    assert main(pair_flags(directory, "report", *model(directory), *vectors(directory))) == 0
    return directory


def model(place: Path) -> list[str]:
    return [f"--model={place / 'model'}"]


def vectors(place: Path) -> list[str]:
    return [f"--vectors={place / 'vectors.txt'}"]


def head(place: Path, output: str) -> bytes:
    return (place / output / "head.safetensors").read_bytes()


def test_learns_pairs_and_writes_the_report(place: Path) -> None:
    tree = results(place, "report")
    assert {path.name for path in (place / "report").iterdir()} == FILES
    scores = tree["outcomes"][0]["scores"]["test"]
    assert scores["accuracy"] > 0.95
    assert set(scores["by_class"]) == {"other", "same"}
    assert set(scores["by_class"]["same"]) == {"precision", "recall", "f1", "support"}
    assert tree["classes"] == ["other", "same"]
    assert tree["pairs"] == {"train": 240, "validation": 40, "test": 40}
    page = (place / "report" / "report.md").read_text("utf-8")
    assert "| class (test)" in page
    assert "## Confused labels" in page
    assert f"{tree['test_pairs_in_training']:,} test pairs also occur in the training" in page


def test_report_lists_errors_with_both_texts(place: Path) -> None:
    flipped = [(f, s, "same" if y == "other" else "other") for f, s, y in TEST]
    path = write_pairs(place / "flipped.jsonl", flipped)
    main([*pair_flags(place, "wrong", *NO_BILM, *vectors(place)), f"--test={path}"])
    scores = results(place, "wrong")["outcomes"][0]["scores"]["test"]
    lines = (place / "wrong" / "errors.jsonl").read_text("utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    assert len(records) == round(40 * (1 - scores["accuracy"])) > 30
    one = records[0]
    assert one["place"] == f"{path}, line {(number := int(one['place'].rpartition(' ')[2]))}"
    assert (one["first"], one["second"], one["label"]) == flipped[number - 1]
    assert one["predicted"] != one["label"]
    page = (place / "wrong" / "report.md").read_text("utf-8")
    confused = sum(scores["confusion"][i][k] for i, k in ((0, 1), (1, 0)))
    assert confused == len(records)
    assert f"| same       | other           | {scores['confusion'][1][0]}" in page


def test_second_run_does_not_run_the_bilm(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise AssertionError("the biLM was run")

    monkeypatch.setattr(Embedder, "stream", fail)
    more = ["--mix=top,none", "--seeds=2", "--epochs=1", *vectors(place)]
    assert main(pair_flags(place, "again", *model(place), *more)) == 0
    assert len(results(place, "again")["outcomes"]) == 4
    with pytest.raises(AssertionError, match="the biLM was run"):
        main(pair_flags(place, "other", *model(place), f"--cache={place / 'empty'}"))


def test_bilm_reads_every_text_of_a_file_once(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    stream = Embedder.stream

    def record(self: Embedder, texts: Iterable[Sequence[str]], **options: Any) -> Iterator[Any]:
        given = list(texts)
        read.extend(" ".join(words) for words in given)
        return stream(self, given, **options)

    monkeypatch.setattr(Embedder, "stream", record)
    rows = [("a", "the cat", "x"), ("a", "on", "y"), ("on", "a", "x"), ("the cat", "a", "y")]
    path = write_pairs(tmp_path / "few.jsonl", rows)
    flags = [*pair_flags(place, "once", *model(place)), f"--cache={tmp_path / 'cache'}"]
    main([*flags, "--epochs=1", *(f"--{n}={path}" for n in ("train", "validation", "test"))])
    assert sorted(read) == ["a", "on", "the cat"]


def test_same_seed_gives_the_same_head(place: Path) -> None:
    more = [*vectors(place), "--epochs=1", "--dropout=0.3"]
    for output, seed in (("one", 5), ("two", 5), ("three", 6)):
        main(pair_flags(place, output, *model(place), *more, f"--seed={seed}"))
    assert head(place, "one") == head(place, "two") != head(place, "three")
    outcomes = [results(place, name)["outcomes"][0]["scores"] for name in ("one", "two")]
    assert outcomes[0] == outcomes[1]


def test_test_labels_do_not_influence_the_head(place: Path, tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "test.jsonl", [(f, s, "same") for f, s, _ in TEST])
    more = [*NO_BILM, *vectors(place), "--epochs=2"]
    main(pair_flags(place, "with", *more))
    main([*pair_flags(place, "without", *more), f"--test={path}"])
    assert head(place, "with") == head(place, "without")


def test_needs_no_bilm_without_a_mix(place: Path) -> None:
    assert main(pair_flags(place, "none", *NO_BILM, *vectors(place))) == 0
    tree = results(place, "none")
    assert tree["bilm"] is None
    assert tree["outcomes"][0]["scores"]["test"]["accuracy"] > 0.9
    assert not (place / "none" / "mix.png").exists()
    classifier = PairClassifier.from_pretrained(place / "none")
    assert classifier.predict([("a cat on", "the  cat"), ("a cat on", "the mat")]) == [
        "same",
        "other",
    ]


def test_predictions_are_those_of_the_evaluation(place: Path) -> None:
    classifier = PairClassifier.from_pretrained(place / "report")
    probabilities = classifier.predict_proba([(f, s) for f, s, _ in TEST])
    assert probabilities.shape == (40, 2)
    predicted = classifier.predict((f, s) for f, s, _ in TEST)  # any iterable
    scores = results(place, "report")["outcomes"][0]["scores"]["test"]
    wrong = [i for i, (row, p) in enumerate(zip(TEST, predicted, strict=True)) if row[2] != p]
    assert 1 - len(wrong) / 40 == pytest.approx(scores["accuracy"])
    lines = (place / "report" / "errors.jsonl").read_text("utf-8").splitlines()
    places = [int(json.loads(line)["place"].rpartition(" ")[2]) - 1 for line in lines]
    assert places == wrong
    alone = np.concatenate([classifier.predict_proba([(f, s)]) for f, s, _ in TEST[:5]])
    np.testing.assert_allclose(alone, probabilities[:5], atol=1e-5)


def test_windows_do_not_change_predictions(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = PairClassifier.from_pretrained(place / "report")
    items = [(f, s) for f, s, _ in TEST[:12]]
    whole = classifier.predict_proba(items)
    monkeypatch.setattr("downstream.predictors.pairs.WINDOW_WORDS", 20)
    np.testing.assert_allclose(classifier.predict_proba(items), whole, atol=1e-5)


def test_classifier_rejects_bad_pairs(place: Path) -> None:
    classifier = PairClassifier.from_pretrained(place / "report")
    assert classifier.predict([]) == []
    bad: Any
    for bad in (["ab"], [("a", "b", "c")], [None]):
        with pytest.raises(TypeError, match="expected two texts"):
            classifier.predict(bad)
    with pytest.raises(CorpusError, match="pair 2 of 2: the second text is empty"):
        classifier.predict([("a", "b"), ("a", " ")])
    with pytest.raises(CheckpointError, match=r"pair_classifier\.json"):
        PairClassifier.from_pretrained(place / "model")
    with pytest.raises(CheckpointError, match=r"tagger\.json"):
        Tagger.from_pretrained(place / "report")


def test_predict_command_reads_files_and_standard_input(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    items = [("the cat", "a cat"), ("the cat", "a mat")]
    expected = PairClassifier.from_pretrained(place / "report").predict(items)
    (place / "in.tsv").write_text("q\tr\nthe cat\ta cat\nthe cat\ta mat\n", "utf-8")
    common = ["--head", str(place / "report"), "--input"]
    columns = ["--first-column=q", "--second-column=r"]
    predict([*common, str(place / "in.tsv"), *columns, "--output", str(place / "out.csv")])
    with open(place / "out.csv", encoding="utf-8", newline="") as file:
        table = list(csv.reader(file))
    assert table[0] == ["label", "probability", "p(other)", "p(same)"]
    assert [row[0] for row in table[1:]] == expected
    lines = b"the cat\ta cat\nthe cat\ta mat\n"
    objects = b"".join(
        json.dumps({"sentence1": f, "sentence2": s}).encode() + b"\n" for f, s in items
    )
    for data, more in ((lines, []), (objects, ["--format=jsonl"])):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        capsys.readouterr()
        predict([*common, "-", "--output", "-", *more])
        records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [record["label"] for record in records] == expected
        assert sum(records[0]["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    with pytest.raises(ConfigError, match=r"must end in \.csv or \.jsonl"):
        predict([*common, "-", "--output", str(place / "out.tsv")])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\tb\nc\n")))
    with pytest.raises(CorpusError, match="standard input, line 2 has 1 column;"):
        predict([*common, "-", "--output", "-"])
    with pytest.raises(CorpusError, match=r"in\.tsv has no column 'sentence1'"):
        predict([*common, str(place / "in.tsv"), "--output", "-"])


@pytest.mark.parametrize(
    ("flag", "text", "message"),
    [
        ("--test", "sentence1\tsentence2\tlabel\na\tb\n", r"bad\.tsv, line 2 has 2 columns"),
        ("--train", "sentence1\tsentence2\na\tb\n", r"bad\.tsv has no column 'label'"),
        ("--test", "sentence1\tsentence2\tlabel\na\t \tx\n", r"bad\.tsv, line 2: the text is em"),
        ("--train", "sentence1\tsentence2\tlabel\na\tb\t\n", r"bad\.tsv, line 2: the label is e"),
        ("--test", "sentence1\tsentence2\tlabel\na\tb\tz\n", r"bad\.tsv, line 2: the label 'z'"),
        ("--validation", "sentence1\tsentence2\tlabel\na\tb\tz\n", r"bad\.tsv, line 2: the lab"),
        ("--train", "", r"bad\.tsv has no rows"),
        ("--train", "sentence1\tsentence2\tlabel\na\tb\tx\n", r"bad\.tsv has only one class"),
        ("--test", "sentence1\tsentence2\tlabel\na\0\tb\tx\n", r"bad\.tsv, line 2 contains a NUL"),
    ],
)
def test_rejects_bad_pairs_before_the_bilm_reads(
    place: Path, tmp_path: Path, flag: str, text: str, message: str
) -> None:
    path = tmp_path / "bad.tsv"
    path.write_text(text, "utf-8")
    cache = f"--cache={tmp_path / 'cache'}"
    with pytest.raises(BilmError, match=message):
        main([*pair_flags(place, "mistake", *model(place), cache), f"{flag}={path}"])
    assert not (place / "mistake").exists()
    assert not (tmp_path / "cache").exists()


def test_error_exits_with_2(place: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("sentence1,sentence2,label\na,b\n", "utf-8")
    command = [sys.executable, "-m", "bilm", "tasks", "pair"]
    command += [*pair_flags(place, "no", *model(place)), f"--train={tmp_path / 'bad.csv'}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert "bad.csv, line 2 has 2 columns, but the first row has 3" in done.stderr
    assert "Traceback" not in done.stderr


def test_keeps_unknown_labels_as_errors(place: Path, tmp_path: Path) -> None:
    rows = [("the cat", "a cat", "-"), *TEST[:3]]
    path = write_pairs(tmp_path / "test.jsonl", rows)
    files = [f"--test={path}", f"--validation={path}", "--unknown-labels=keep", "--epochs=1"]
    assert main([*pair_flags(place, "kept", *NO_BILM, *vectors(place)), *files]) == 0
    tree = results(place, "kept")
    scores = tree["outcomes"][0]["scores"]["test"]
    assert scores["by_class"]["-"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 1}
    assert tree["classes"] == ["other", "same"]
    assert tree["outcomes"][0]["history"]["validation_accuracy"] == [scores["accuracy"]]
    errors = (place / "kept" / "errors.jsonl").read_text("utf-8").splitlines()
    assert json.loads(errors[0])["label"] == "-"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--mix=trainable"], "model is missing"),
        (["--mix=none", "--vectors=v"], "model is missing, whose tokenizer splits the texts"),
        (["--mix=none", "--tokenized"], "needs word vectors or characters"),
        (["--mix=none", "--tokenized", "--characters", "--elmo-at=both"], "set it to 'input'"),
        (["--model=m", "--elmo-at=output"], "needs word vectors or characters"),
        (["--model=m", "--first-column=label"], "they must be different"),
        (["--model=m", "--device=nowhere"], "the device is 'nowhere'"),
        (["--model=m", "--elmo-at=middle"], '--elmo-at is "middle"'),
    ],
)
def test_rejects_invalid_settings(place: Path, more: list[str], message: str) -> None:
    with pytest.raises(BilmError, match=message):
        main([*pair_flags(place, "mistake"), *more])


def test_help_does_not_import_torch() -> None:
    code = (
        "import sys, contextlib, io\n"
        "from downstream.pair import main\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        "    main(['--help'])\n"
        "assert not {'torch', 'sklearn', 'matplotlib'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
