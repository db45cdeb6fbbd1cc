"""The analyses that train heads: layers, penalty and sample efficiency."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bilm.errors import BilmError
from downstream.analyses import layers, penalty, sample_efficiency
from downstream.settings.sections import DataSettings, Settings
from downstream.tasks.classification import read_task
from tests.conftest import ROOT
from tests.downstream.topic_task import head_flags, make_place


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_place(tmp_path_factory.mktemp("analyses"))


def results(place: Path, output: str, picture: str) -> dict[str, Any]:
    assert (place / output / picture).read_bytes().startswith(b"\x89PNG")
    assert picture in (place / output / "report.md").read_text("utf-8")
    tree: dict[str, Any] = json.loads((place / output / "results.json").read_text("utf-8"))
    return tree


def test_all_layers_and_each_alone(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layers.main(head_flags(place, "layers", "--seeds", "2"))
    figures = results(place, "layers", "layers.png")["layers"]
    assert list(figures) == ["trainable", "average", "layer:2", "layer:1", "layer:0"]
    assert figures["layer:1"]["shares"] == [0, 1, 0]
    assert figures["average"]["shares"] == pytest.approx([1 / 3] * 3)
    assert figures["average"]["seeds"] == [0, 1]
    for of_kind in figures.values():
        test = of_kind["test"]
        assert test["mean"] == pytest.approx(np.mean(test["values"]))
        assert test["std"] == pytest.approx(np.std(test["values"], ddof=1))
        assert test["mean"] > 0.4  # three classes, and a biLM that has learned nothing
    assert figures["layer:0"]["test"]["mean"] > 0.6  # words alone tell the topics apart
    assert "| layer 2 (top)" in capsys.readouterr().out


def test_a_strong_penalty_holds_the_average(place: Path) -> None:
    more = ["--penalties", "0.0001,10", "--epochs", "25", "--mix-learning-rate", "0.1"]
    penalty.main(head_flags(place, "penalty", *more))
    strong, weak = results(place, "penalty", "penalty.png")["penalties"]
    assert (strong["penalty"], weak["penalty"]) == (10, 0.0001)
    assert len(weak["seeds"]) == 3  # by default
    distances = [np.abs(np.array(one["shares"]) - 1 / 3).max() for one in (strong, weak)]
    assert distances[0] < 0.5 * distances[1]


def test_more_texts_are_better(place: Path) -> None:
    more = ["--shares", "0.1,1", "--seeds", "2", "--vectors", str(place / "vectors.txt")]
    sample_efficiency.main(head_flags(place, "shares", *more))
    few, many = results(place, "shares", "sample_efficiency.png")["shares"]
    assert (few["texts"], many["texts"]) == (18, 162)
    for method in ("bilm", "tfidf", "glove"):
        assert many[method]["mean"] >= few[method]["mean"]
        assert len(many[method]["values"]) == 2
    assert many["tfidf"]["mean"] == many["glove"]["mean"] == 1.0


def test_a_part_holds_every_class_and_the_smaller_parts(place: Path) -> None:
    data = DataSettings(train=str(place / "train.csv"), test=str(place / "test.csv"))
    task = read_task(Settings(model="-", output="-", data=data))
    parts = [sample_efficiency.part_of(task, share, seed=4) for share in (0.01, 0.2, 1.0)]
    places = [set(part.splits["train"].places.tolist()) for part in parts]
    assert [len(chosen) for chosen in places] == [3, 33, 162]
    assert places[0] < places[1] < places[2]
    for part in parts:
        assert sorted(set(part.splits["train"].labels)) == [0, 1, 2]
        train = part.splits["train"]
        labels = part.files[train.file].labels
        expected = [part.classes.index(labels[i]) for i in train.places]
        assert train.labels.tolist() == expected
        assert part.splits["test"] is task.splits["test"]
    other = sample_efficiency.part_of(task, 0.2, seed=5)
    assert set(other.splits["train"].places.tolist()) != places[1]


@pytest.mark.parametrize(
    ("main", "more", "message"),
    [
        (penalty.main, ["--penalties", "0"], "each must be above 0"),
        (sample_efficiency.main, ["--shares", "1.5"], "each must be above 0 and at most 1"),
        (sample_efficiency.main, ["--mix", "none", "--vectors", "v.txt"], "remove --mix none"),
        (layers.main, ["--head", "sum"], "head"),
        (layers.main, ["--finetune"], "--finetune is supported only by downstream.classify"),
    ],
)
def test_mistakes_are_told(place: Path, main: Any, more: list[str], message: str) -> None:
    with pytest.raises(BilmError, match=message):
        main(head_flags(place, "mistake", *more))


@pytest.mark.parametrize("name", ["layers", "penalty", "sample_efficiency", "probe", "neighbours"])
def test_help_needs_no_torch(name: str) -> None:
    code = (
        "import sys\n"
        f"from downstream.analyses.{name} import main\n"
        "try: main(['--help'])\n"
        "except SystemExit as e: assert e.code == 0\n"
        "assert not {'torch', 'sklearn', 'matplotlib'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True)
