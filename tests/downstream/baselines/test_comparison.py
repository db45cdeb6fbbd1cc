from __future__ import annotations

import numpy as np
import pytest

from bilm.errors import ConfigError
from downstream.baselines.baseline import NAMES, TITLES, Baseline
from downstream.baselines.comparison import (
    Comparison,
    baselines_page,
    baselines_table,
    chosen_names,
)
from downstream.settings.sections import BaselineSettings, DataSettings, HeadSettings
from downstream.tasks.classification import Task
from downstream.tasks.scores import score
from downstream.tasks.text_task import Split

LABELS = np.array([0, 1, 1, 0])


def baseline(name: str, num_wrong: int) -> Baseline:
    predicted = LABELS.copy()
    predicted[:num_wrong] = 1 - predicted[:num_wrong]
    scores = {split: score(LABELS, predicted, ("a", "b")) for split in ("validation", "test")}
    return Baseline(name, TITLES[name], {"C": 4.0}, scores, cpu_seconds=12.4)


def settings(model: str | None = None, vectors: str | None = None) -> BaselineSettings:
    data = DataSettings(train="train.csv", test="test.csv")
    head = HeadSettings(vectors=vectors)
    return BaselineSettings(model=model, output="output", data=data, head=head)


def test_selects_all_runnable_baselines_by_default() -> None:
    assert chosen_names(None, settings(model="model", vectors="vectors.txt")) == NAMES
    assert chosen_names(None, settings()) == (
        "majority",
        "tfidf",
        "svm",
        "svd",
        "skipgram",
    )


def test_chosen_names_have_a_fixed_order() -> None:
    assert chosen_names("svd, tfidf", settings()) == ("tfidf", "svd")


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("bert", "--which contains 'bert'; the baselines are majority, tfidf"),
        ("glove", "requires --vectors FILE"),
        ("tfidf,untrained", "requires --model DIR"),
    ],
)
def test_rejects_names_that_cannot_run(which: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        chosen_names(which, settings())


def test_formats_table_and_page() -> None:
    baselines = [baseline("tfidf", 0), baseline("svm", 1)]
    table = baselines_table(baselines)
    _, _, first, second = table.splitlines()
    cells = [cell.strip() for cell in first.strip("|").split("|")]
    assert cells == [TITLES["tfidf"], "100.00", "100.00", "100.00", "C 4.0", "12"]
    assert "| 75.00 " in second
    split = Split("train", np.arange(4), LABELS)
    task = Task({}, ("a", "b"), dict.fromkeys(("train", "validation", "test"), split))
    page = baselines_page(Comparison(settings(), task, baselines))
    assert page.paragraphs[-1] == table
    assert "4 train, 4 validation, 4 test texts" in page.paragraphs[1]
    assert list(page.figures) == ["settings", "classes", "texts", "baselines", "peak_memory_gib"]
    assert page.figures["texts"] == {"train": 4, "validation": 4, "test": 4}
    assert list(page.figures["baselines"][0]) == [
        "name",
        "title",
        "chosen",
        "scores",
        "cpu_seconds",
    ]
