from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bilm.errors import BilmError, ConfigError
from bilm.pretrained.model_directory import PretrainedBiLm
from downstream.baselines.__main__ import NAMES, main, save_untrained
from downstream.settings.sections import DataSettings, Settings
from downstream.tasks.classification import read_task
from tests.conftest import ROOT
from tests.downstream.topic_task import flags, head_flags, make_place


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_place(tmp_path_factory.mktemp("topics"))


def results(place: Path, output: str) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads((place / output / "results.json").read_text("utf-8"))
    return tree


def test_all_baselines_on_the_split_of_classify(
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
    data = DataSettings(train=str(place / "train.csv"), test=str(place / "test.csv"))
    settings = Settings(model="-", output="-", data=data)
    task = read_task(
        settings.model_copy(update={"train": settings.train.model_copy(update={"seed": 3})})
    )
    assert tree["texts"] == {name: len(split) for name, split in task.splits.items()}
    assert tree["texts"] == {"train": 162, "test": 90, "validation": 18}
    page = (place / "all" / "report.md").read_text("utf-8")
    printed = capsys.readouterr().out
    assert all(line in page for line in printed.split("\n\n")[0].splitlines())
    assert "| TF-IDF of words and pairs, logistic regression" in page
    leftovers = {path.name for path in place.iterdir() if path.name.startswith(".")}
    assert not leftovers


def test_the_same_seed_gives_the_same_figures(place: Path) -> None:
    outcomes = []
    for output in ("once", "twice"):
        main(head_flags(place, output, "--which", "svd,skipgram,untrained,svm"))
        outcomes.append(results(place, output)["baselines"])
        for baseline in outcomes[-1]:
            del baseline["cpu_seconds"]
    assert outcomes[0] == outcomes[1]
    assert [b["name"] for b in outcomes[0]] == ["svm", "svd", "skipgram", "untrained"]


def test_without_model_and_vectors_the_others_run(place: Path) -> None:
    main(flags(place, "some"))
    names = [baseline["name"] for baseline in results(place, "some")["baselines"]]
    assert names == ["majority", "tfidf", "svm", "svd", "skipgram"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--which", "bert"], "--which names 'bert'; known are majority, tfidf"),
        (["--which", "glove"], "needs --vectors FILE"),
        (["--which", "untrained"], "needs --model DIR"),
        (["--which", "tfidf", "--text-columns", "body"], "no column 'body'"),
        (["--model", "nowhere"], "--model: there is no nowhere"),
        (
            ["--model", "nowhere", "--finetune"],
            "--finetune is supported only by downstream.classify",
        ),
    ],
)
def test_mistakes_are_told(place: Path, more: list[str], message: str) -> None:
    with pytest.raises(BilmError, match=message):
        main(flags(place, "mistake", *more))
    assert not (place / "mistake").exists()


def test_vectors_of_other_words_are_refused(place: Path) -> None:
    (place / "strange.txt").write_text("xyzzy 1 2\n")
    with pytest.raises(ConfigError, match="none of the words"):
        main(flags(place, "x", "--which", "glove", "--vectors", str(place / "strange.txt")))


def test_the_untrained_model_has_the_shape_and_not_the_weights(place: Path) -> None:
    for name, seed in (("one", 5), ("same", 5), ("other", 6)):
        save_untrained(place / "model", place / name, seed)
    trained, one, same, other = (
        PretrainedBiLm.from_pretrained(place / name) for name in ("model", "one", "same", "other")
    )
    assert one.model.config == trained.model.config
    assert one.tokenizer is not None
    weights = [dict(m.model.named_parameters()) for m in (trained, one, same, other)]
    assert weights[0].keys() == weights[1].keys()
    name = max(weights[0], key=lambda key: weights[0][key].numel())
    assert torch.equal(weights[1][name], weights[2][name])
    for different in (weights[0], weights[3]):
        assert np.abs((weights[1][name] - different[name]).detach().numpy()).max() > 1e-3


def test_a_mistake_has_no_traceback_and_help_needs_no_torch(place: Path) -> None:
    command = [sys.executable, "-m", "downstream.baselines"]
    done = subprocess.run(
        [*command, *flags(place, "x", "--which", "bert")], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: --which names")
    code = (
        "import sys\n"
        "from downstream.baselines.__main__ import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'sklearn', 'gensim', 'matplotlib'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True)
