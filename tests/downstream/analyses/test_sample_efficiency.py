from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bilm.errors import BilmError
from downstream.analyses.sample_efficiency import main, part_of
from downstream.tasks.classification import Task
from downstream.tasks.text_task import Split
from downstream.texts.labelled import LabelledTexts
from tests.downstream.analysis_results import analysis_results
from tests.downstream.topic_task import head_flags, make_place


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_place(tmp_path_factory.mktemp("sample_efficiency"))


def test_more_texts_give_higher_accuracy(place: Path) -> None:
    more = ["--shares", "0.1,1", "--seeds", "2", "--vectors", str(place / "vectors.txt")]
    main(head_flags(place, "shares", *more))
    directory = place / "shares"
    few, many = analysis_results(directory, "sample_efficiency.png")["shares"]
    assert list(few) == ["share", "texts", "bilm", "tfidf", "glove"]
    assert (few["texts"], many["texts"]) == (18, 162)
    for method in ("bilm", "tfidf", "glove"):
        assert many[method]["mean"] >= few[method]["mean"]
        assert len(many[method]["values"]) == 2
    assert many["tfidf"]["mean"] == many["glove"]["mean"] == 1.0


def three_classes() -> Task:
    """Return a task of three classes: 162 training, 18 validation and 30 test texts."""
    classes = ("a", "b", "c")
    files = {
        name: LabelledTexts(("x",) * count, tuple(classes[i % 3] for i in range(count)))
        for name, count in (("train", 180), ("test", 30))
    }
    places = {"train": np.arange(162), "validation": np.arange(162, 180), "test": np.arange(30)}
    splits = {
        name: Split("test" if name == "test" else "train", indices, indices % 3)
        for name, indices in places.items()
    }
    return Task(files, classes, splits)


def test_part_contains_every_class_and_all_smaller_parts() -> None:
    task = three_classes()
    parts = [part_of(task, share, seed=4) for share in (0.01, 0.2, 1.0)]
    places = [set(part.splits["train"].places.tolist()) for part in parts]
    assert [len(chosen) for chosen in places] == [3, 33, 162]
    assert places[0] < places[1] < places[2]
    for part in parts:
        assert sorted(set(part.splits["train"].labels)) == [0, 1, 2]
        split = part.splits["train"]
        expected = [part.classes.index(part.files[split.file].labels[i]) for i in split.places]
        assert split.labels.tolist() == expected
        assert part.splits["test"] is task.splits["test"]
    other = part_of(task, 0.2, seed=5)
    assert set(other.splits["train"].places.tolist()) != places[1]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--shares", "1.5"], "each must be above 0 and at most 1"),
        (["--mix", "none", "--vectors", "v.txt"], "remove --mix none"),
    ],
)
def test_rejects_invalid_flags(place: Path, more: list[str], message: str) -> None:
    with pytest.raises(BilmError, match=message):
        main(head_flags(place, "mistake", *more))
