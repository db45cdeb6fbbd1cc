from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bilm.errors import ConfigError
from downstream.analyses.nearest_senses import (
    MEAN_OF_LAYERS,
    MOST_FREQUENT,
    SenseOptions,
    Senses,
    nearest_rows,
    nearest_senses,
)
from downstream.texts.senses import Lemma, SenseInstance
from tests.downstream.sense_task import instance, sense_rows, write_rows
from tests.downstream.topic_task import embedder, golden_bilm

NOT_IN_TRAINING = {
    "tokens": ["a", "bank", "of", "birds"],
    "instances": [
        instance(1, 1, "bank", ["bank%verb"], "VERB"),
        instance(3, 3, "bird", ["bird%first"]),
    ],
}
FIRST = [*sense_rows(30, 2), NOT_IN_TRAINING]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("senses")
    golden_bilm().save_pretrained(directory / "model")
    write_rows(directory / "train.jsonl", sense_rows(60, 1))
    write_rows(directory / "first.jsonl", FIRST)
    write_rows(directory / "second.jsonl", sense_rows(20, 3))
    return directory


def options(place: Path, **changes: Any) -> SenseOptions:
    tests = [place / "first.jsonl", place / "second.jsonl"]
    paths = {"model": place / "model", "train": place / "train.jsonl", "output": place / "page"}
    return SenseOptions(**{**paths, "test": tests, "progress": False, **changes})


def brute_force(place: Path, test: list[dict[str, Any]]) -> dict[str, list[str | None]]:
    """Return the answers by comparing each instance with the mean of every sense, one by one."""
    model = embedder(place)

    def vectors(row: dict[str, Any]) -> list[list[np.ndarray[Any, Any]]]:
        """Return the vector of each instance: the layers, and their mean."""
        words, tokens = [], []
        for number, token in enumerate(row["tokens"]):
            for word in token.split("_"):
                words.append(word)
                tokens.append(number)
        layers = model.embed([words])[0].astype(np.float16).astype(np.float64)
        result = []
        for item in row["instances"]:
            chosen = [i for i, t in enumerate(tokens) if item["start"] <= t <= item["end"]]
            mean = sum(layers[:, i] for i in chosen) / len(chosen)
            result.append([*mean, mean.mean(axis=0)])
        return result

    groups: dict[tuple[str, str], dict[str, list[list[np.ndarray[Any, Any]]]]] = {}
    for row in sense_rows(60, 1):
        for item, found in zip(row["instances"], vectors(row), strict=True):
            senses = groups.setdefault((item["lemma"], item["pos"]), {})
            for key in dict.fromkeys(item["keys"]):
                senses.setdefault(key, []).append(found)
    answers: dict[str, list[str | None]] = {}
    names = ["layer 0 (words alone)", "layer 1", "layer 2", MEAN_OF_LAYERS]
    for row in test:
        for item, found in zip(row["instances"], vectors(row), strict=True):
            senses = groups.get((item["lemma"], item["pos"]), {})
            for layer, name in enumerate(names):
                best, best_cosine = None, -2.0
                for key, group in sorted(senses.items(), key=lambda pair: -len(pair[1])):
                    mean = np.mean([vector[layer] for vector in group], axis=0)
                    query = found[layer]
                    cosine = query @ mean / (np.linalg.norm(query) * np.linalg.norm(mean))
                    if cosine > best_cosine + 1e-6:
                        best, best_cosine = key, float(cosine)
                answers.setdefault(name, []).append(best)
    return answers


def test_matches_brute_force(place: Path) -> None:
    result = nearest_senses(options(place))
    tests = {"first": FIRST, "second": sense_rows(20, 3)}
    for name, rows in tests.items():
        expected = brute_force(place, rows)
        answers = dict(result.by_set[name].keys)
        frequent = answers.pop(MOST_FREQUENT)
        assert answers == expected
        assert len({tuple(keys) for keys in expected.values()}) > 2  # the layers differ
        counts = Counter(
            k for row in sense_rows(60, 1) for i in row["instances"] for k in i["keys"]
        )
        assert counts["bank%river"] != counts["bank%money"]
        most = max((key for key in counts if key.startswith("bank")), key=lambda k: counts[k])
        assert frequent[0] == most
    assert result.by_set["first"].keys["layer 1"][-2:] == [None, None]


def test_equal_vectors_get_the_most_frequent_sense(place: Path) -> None:
    """In layer 0, all instances of `bank` have the same vector."""
    answers = nearest_senses(options(place)).all_sets()
    is_bank = [instance.lemma == Lemma("bank", "NOUN") for instance in answers.instances]
    found = {
        name: [key for key, bank in zip(keys, is_bank, strict=True) if bank]
        for name, keys in answers.keys.items()
    }
    assert found["layer 0 (words alone)"] == found[MOST_FREQUENT]
    assert len(set(found["layer 1"])) > 1


def test_lemmas_that_are_not_in_training_get_their_first_sense(place: Path) -> None:
    index = place / "index.sense"
    index.write_text("bird%1:05:00:: 1 1 9\nbird%1:13:00:: 2 2 1\n", encoding="utf-8")
    answers = nearest_senses(options(place, sense_index=index)).by_set["first"]
    for keys in answers.keys.values():
        assert list(keys[-2:]) == [None, "bird%1:05:00::"]
    counts = answers.counts()
    assert counts["first_sense"] == counts["without_answer"] == 1
    assert counts["instances"] - counts["lemma_in_training"] == 2


def test_second_run_does_not_run_the_bilm(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = nearest_senses(options(place)).all_sets().keys

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("the biLM was run")

    monkeypatch.setattr("bilm.embedding.embedder.Embedder.stream", fail)
    assert nearest_senses(options(place)).all_sets().keys == expected
    with pytest.raises(AssertionError, match="the biLM was run"):
        nearest_senses(options(place, cache=place / "other"))


def test_equally_frequent_senses_are_in_the_order_of_training() -> None:
    lemma = Lemma("a", "NOUN")
    keys = [("z",), ("b", "c"), ("c",), ("b",), ("y", "y")]
    senses = Senses([SenseInstance(0, 0, 1, lemma, key) for key in keys])
    assert senses.by_lemma == {lemma: ("b", "c", "z", "y")}
    assert senses.rows(lemma) == slice(0, 4)
    assert senses.row(lemma, "z") == 2


def test_ties_go_to_the_first_sense() -> None:
    vector = np.array([[1.0, 2.0], [1.0, 0.0]])
    near = np.array([[2.0, 4.0 + 1e-9], [2.0, 0.0]])  # the same direction, up to rounding
    far = np.array([[2.0, 3.0], [2.0, 0.1]])
    assert nearest_rows(vector, np.stack([near, vector])) == [0, 0, 0]
    assert nearest_rows(vector, np.stack([vector, near])) == [0, 0, 0]
    assert nearest_rows(vector, np.stack([far, near])) == [1, 1, 1]
    assert nearest_rows(np.zeros((2, 2)), np.stack([far, near])) == [0, 0, 0]


@pytest.mark.parametrize("names", [("a.jsonl", "b/a.jsonl.gz"), ("all.jsonl",)])
def test_rejects_ambiguous_names_of_test_sets(place: Path, names: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="rename the file"):
        options(place, test=[Path(name) for name in names])
