from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score

from bilm.errors import ConfigError
from downstream import BiLmPairClassifier, PairClassifier
from downstream.pair import main
from downstream.settings.pairs import PairDataSettings, PairSettings
from tests.downstream.order_task import tiny_bilm
from tests.downstream.pair_task import pairs, write_pairs

ROWS = pairs(60, 1)
PAIRS, LABELS = [row[:2] for row in ROWS], [row[2] for row in ROWS]
SMALL: dict[str, Any] = {
    "encoder_dim": 8,
    "hidden_dim": 8,
    "dropout": 0.0,
    "learning_rate": 0.02,
    "batch_size": 8,
    "epochs": 3,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pairs") / "model"
    tiny_bilm().save_pretrained(path)
    return path


def test_has_the_defaults_of_the_command() -> None:
    data = PairDataSettings(train="a.csv", test="b.csv")
    expected = PairSettings(model="m", output="o", data=data)
    classifier = BiLmPairClassifier("m")
    own = classifier._settings(classifier._seed())
    assert (own.mix, own.head) == (expected.mix, expected.head)
    assert (own.epochs, own.learning_rate) == (expected.epochs, expected.learning_rate)
    for num_pairs in (10, 1000, 100_000):
        assert own.batch_size(num_pairs) == expected.batch_size(num_pairs)
    same = {"seed", "patience", "weight_decay"}
    assert own.train.model_dump(include=same) == expected.train.model_dump(include=same)
    assert classifier.validation_share == data.validation_share
    assert own.data.max_words == data.max_words


def test_trains_the_head_of_the_command(model: Path, tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "train.jsonl", ROWS)
    flags = [f"--model={model}", f"--train={path}", f"--test={path}", "--seed=3"]
    flags += [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    main([*flags, f"--output={tmp_path / 'report'}"])
    expected = PairClassifier.from_pretrained(tmp_path / "report").predict_proba(PAIRS)
    classifier = BiLmPairClassifier(model, random_state=3, **SMALL).fit(PAIRS, LABELS)
    assert classifier.classes_.tolist() == ["other", "same"]
    np.testing.assert_allclose(classifier.predict_proba(PAIRS), expected, atol=1e-4)


def test_clones_have_the_same_parameters_and_results(model: Path) -> None:
    classifier = BiLmPairClassifier(model, elmo_at="both", **SMALL)
    copy = clone(classifier)
    assert copy.get_params() == classifier.get_params()
    assert copy.set_params(epochs=2).epochs == 2
    copy.set_params(epochs=3)
    state = torch.random.get_rng_state()
    one, two = classifier.fit(PAIRS, LABELS), copy.fit(np.array(PAIRS), np.array(LABELS))
    assert torch.equal(torch.random.get_rng_state(), state)
    np.testing.assert_array_equal(one.predict_proba(PAIRS), two.predict_proba(PAIRS))
    assert set(one.mix_shares_) == {"input", "output"}
    assert (one.n_features_in_, one.n_iter_) == (2, 3)
    loaded = pickle.loads(pickle.dumps(one))
    np.testing.assert_array_equal(loaded.predict(PAIRS), one.predict(PAIRS))


def test_works_with_searches_and_cross_validation(model: Path) -> None:
    classifier = BiLmPairClassifier(model, **{**SMALL, "epochs": 1})
    scores = cross_val_score(classifier, PAIRS, LABELS, cv=2)
    assert scores.shape == (2,)
    search = GridSearchCV(classifier, {"mix": ["top", "average"]}, cv=2)
    search.fit(np.array(PAIRS, dtype=object), LABELS)
    assert search.best_estimator_.mix in ("top", "average")
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_uses_all_pairs_if_they_cannot_be_divided(model: Path) -> None:
    same_first = [("a", "the cat"), ("a", "on")]
    classifier = BiLmPairClassifier(model, **{**SMALL, "epochs": 1})
    assert classifier.fit(same_first, [1, 2]).predict_proba(same_first).shape == (2, 2)
    assert clone(classifier).set_params(validation_share=None).fit(PAIRS, LABELS).n_iter_ == 1


@pytest.mark.parametrize(
    ("changes", "bad_pairs", "bad_labels", "message"),
    [
        ({}, "a text", LABELS, "not the text 'a text'"),
        ({}, [], [], "0 sample"),
        ({}, ["ab", "cd"], [1, 2], "pair 0 is 'ab'; a pair consists of two strings"),
        ({}, [("a", "b"), ("a", 1)], [1, 2], r"pair 1 is \('a', 1\)"),
        ({}, np.ones((2, 3)), [1, 2], "pair 0 is"),
        ({}, [("a", "b"), ("a", " ")], [1, 2], "the text ' ' has no words"),
        ({}, PAIRS, LABELS[:3], "inconsistent numbers of samples"),
        ({}, PAIRS, ["x"] * len(PAIRS), "only one class"),
        ({"model": None}, PAIRS, LABELS, "model is None"),
        ({"max_words": 0}, PAIRS, LABELS, "max_words is 0"),
    ],
)
def test_rejects_invalid_input(
    model: Path, changes: dict[str, Any], bad_pairs: Any, bad_labels: Any, message: str
) -> None:
    classifier = BiLmPairClassifier(model, **SMALL).set_params(**changes)
    with pytest.raises(ValueError, match=message):
        classifier.fit(bad_pairs, bad_labels)


@pytest.mark.parametrize(
    ("name", "value"), [("mix", "bottom"), ("elmo_at", "output"), ("dropout", 2), ("epochs", 0)]
)
def test_rejects_invalid_parameters(model: Path, name: str, value: Any) -> None:
    classifier = BiLmPairClassifier(model, **SMALL).set_params(**{name: value})
    with pytest.raises(ConfigError, match=f"^{name} is "):
        classifier.fit(PAIRS, LABELS)
