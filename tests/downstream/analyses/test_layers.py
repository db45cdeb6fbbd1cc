from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bilm.errors import BilmError
from downstream.analyses.layers import LayerComparison, layers_page, layers_table, main
from downstream.analyses.shared import Accuracy, HeadFigures
from downstream.settings.sections import DataSettings, Settings
from tests.downstream.analysis_results import analysis_results
from tests.downstream.topic_task import head_flags, make_place


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_place(tmp_path_factory.mktemp("layers"))


def test_compares_all_layers_with_each_layer(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(head_flags(place, "layers", "--seeds", "2"))
    figures = analysis_results(place / "layers", "layers.png")["layers"]
    assert list(figures) == ["trainable", "average", "layer:2", "layer:1", "layer:0"]
    assert figures["layer:1"]["shares"] == [0, 1, 0]
    assert figures["average"]["shares"] == pytest.approx([1 / 3] * 3)
    assert figures["average"]["seeds"] == [0, 1]
    for of_kind in figures.values():
        test = of_kind["test"]
        assert test["mean"] == pytest.approx(np.mean(test["values"]))
        assert test["std"] == pytest.approx(np.std(test["values"], ddof=1))
        assert test["mean"] > 0.4  # three classes and an untrained biLM
    assert figures["layer:0"]["test"]["mean"] > 0.6  # words alone separate the topics
    assert "| layer 2 (top)" in capsys.readouterr().out


def test_table_and_page() -> None:
    accuracy = Accuracy(mean=0.5, std=0.01, values=[0.49, 0.51])
    figures = HeadFigures([0, 1], accuracy, accuracy, [0.25, 0.75], [0.0, 0.0], gamma=1.0)
    data = DataSettings(train="train.csv", test="test.csv")
    settings = Settings(model="model", output="output", data=data)
    kinds = ("trainable", "average", "layer:1", "layer:0")
    comparison = LayerComparison(settings, dict.fromkeys(kinds, figures))
    rows = [line.strip("| ").split("|") for line in layers_table(comparison).splitlines()[2:]]
    assert [[cell.strip() for cell in row] for row in rows] == [
        [name, "50.00 ± 1.00", "50.00 ± 1.00", "0.25 0.75"]
        for name in (
            "all, trained mix",
            "all, plain average",
            "layer 1 (top)",
            "layer 0 (words alone)",
        )
    ]
    page = layers_page(comparison)
    assert list(page.figures["layers"]) == list(kinds)
    assert list(page.figures["layers"]["average"]) == [
        "seeds",
        "validation",
        "test",
        "shares",
        "shares_std",
        "gamma",
    ]
    assert list(page.pictures) == ["layers.png"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--head", "sum"], "head"),
        (["--finetune"], "--finetune is supported only by downstream.classify"),
    ],
)
def test_rejects_mistakes(place: Path, more: list[str], message: str) -> None:
    with pytest.raises(BilmError, match=message):
        main(head_flags(place, "mistake", *more))
