"""The command `python -m downstream.baselines`."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bilm.errors import BilmError, ConfigError
from downstream.baselines.__main__ import main
from downstream.baselines.baseline import NAMES, TITLES
from downstream.settings.sections import DataSettings, Settings, TrainingSettings
from downstream.tasks.classification import read_task
from tests.conftest import ROOT
from tests.downstream.topic_task import flags, head_flags, make_place


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_place(tmp_path_factory.mktemp("topics"))


def results(place: Path, output: str) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads((place / output / "results.json").read_text("utf-8"))
    return tree


def test_runs_all_baselines_on_the_split_of_classify(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(head_flags(place, "all", "--vectors", str(place / "vectors.txt"), "--seed", "3"))
    tree = results(place, "all")
    assert [baseline["name"] for baseline in tree["baselines"]] == list(NAMES)
    test = {b["name"]: b["scores"]["test"]["accuracy"] for b in tree["baselines"]}
    assert test["majority"] == pytest.approx(1 / 3)
    assert test["tfidf"] == test["svm"] == test["glove"] == 1.0
    assert test["svd"] > 0.9
    assert test["skipgram"] > 0.5
    assert test["untrained"] > 0.5
    task = read_task(
        Settings(
            model=str(place / "model"),
            output=str(place / "all"),
            data=DataSettings(train=str(place / "train.csv"), test=str(place / "test.csv")),
            train=TrainingSettings(seed=3),
        )
    )
    assert tree["texts"] == {name: len(split) for name, split in task.splits.items()}
    assert tree["texts"] == {"train": 162, "test": 90, "validation": 18}
    page = (place / "all" / "report.md").read_text("utf-8")
    printed = capsys.readouterr().out
    assert all(line in page for line in printed.split("\n\n")[0].splitlines())
    assert f"| {TITLES['tfidf']}" in page
    temporary = {path.name for path in place.iterdir() if path.name.startswith(".")}
    assert not temporary


def test_same_seed_gives_same_figures(place: Path) -> None:
    outcomes = []
    for output in ("once", "twice"):
        main(head_flags(place, output, "--which", "svd,skipgram,untrained,svm"))
        outcomes.append(results(place, output)["baselines"])
        for baseline in outcomes[-1]:
            del baseline["cpu_seconds"]
    assert outcomes[0] == outcomes[1]
    assert [b["name"] for b in outcomes[0]] == ["svm", "svd", "skipgram", "untrained"]


def test_runs_without_model_and_vectors(place: Path) -> None:
    main(flags(place, "some", "--which", "majority,tfidf"))
    tree = results(place, "some")
    assert [baseline["name"] for baseline in tree["baselines"]] == ["majority", "tfidf"]
    assert tree["settings"]["model"] is None


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--which", "bert"], "--which contains 'bert'"),
        (["--which", "glove"], "requires --vectors FILE"),
        (["--which", "untrained"], "requires --model DIR"),
        (["--which", "tfidf", "--text-columns", "body"], "no column 'body'"),
        (["--model", "nowhere"], "nowhere is neither a run"),
        (["--model", "{place}/model", "--mix", "layer:3"], "the model has 3 layers"),
        (["--vectors", "nowhere.txt"], "cannot read nowhere.txt: No such file"),
        (["--output", "{place}/train.csv/page"], "train.csv is not a directory"),
        (
            ["--model", "nowhere", "--finetune"],
            "--finetune is supported only by downstream.classify",
        ),
    ],
)
def test_rejects_invalid_flags_before_a_baseline_runs(
    place: Path, more: list[str], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with pytest.raises(BilmError, match=message):
        main(flags(place, "mistake", *(flag.format(place=place) for flag in more)))
    assert not (place / "mistake").exists()
    assert "test accuracy" not in caplog.text


def test_rejects_vectors_without_a_word_of_the_texts(place: Path) -> None:
    (place / "strange.txt").write_text("xyzzy 1 2\n")
    with pytest.raises(ConfigError, match="no word of the texts has a vector"):
        main(flags(place, "x", "--which", "glove", "--vectors", str(place / "strange.txt")))


def test_invalid_flag_exits_with_2_without_traceback(place: Path) -> None:
    command = [sys.executable, "-m", "downstream.baselines"]
    done = subprocess.run(
        [*command, *flags(place, "x", "--which", "bert")], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: --which contains")


def test_help_does_not_import_large_libraries() -> None:
    code = (
        "import sys\n"
        "from downstream.baselines.__main__ import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'sklearn', 'gensim', 'matplotlib'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True)
