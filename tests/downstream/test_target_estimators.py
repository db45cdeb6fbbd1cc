"""Estimators for indicator matrices of labels, and for numbers."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix  # type: ignore[import-untyped]
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, cross_val_score

from downstream import TextLabeler, TextRegressor
from downstream.classify import main as classify
from downstream.estimators import BiLmClassifier, BiLmRegressor
from tests.downstream.order_task import write_csv
from tests.downstream.target_task import label_texts, number_texts
from tests.downstream.topic_task import TOPICS, golden_bilm

NAMES = sorted(TOPICS)
PARAMETERS: dict[str, Any] = {
    "dropout": 0.0,
    "hidden_dim": 64,
    "epochs": 25,
    "patience": 25,
    "learning_rate": 0.01,
    "batch_size": 32,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("estimators") / "model"
    golden_bilm().save_pretrained(directory)
    return directory


def labelled(count: int, seed: int) -> tuple[list[str], np.ndarray[Any, np.dtype[np.int64]]]:
    rows = label_texts(count, seed)
    matrix = np.array([[int(name in labels) for name in NAMES] for labels, _ in rows])
    return [text for _, text in rows], matrix


def numbered(count: int, seed: int) -> tuple[list[str], list[float]]:
    numbers, texts = zip(*number_texts(count, seed), strict=True)
    return list(texts), [float(number) for number in numbers]


def test_classifier_fits_an_indicator_matrix(model: Path) -> None:
    texts, matrix = labelled(300, 1)
    new, expected = labelled(60, 2)
    classifier = BiLmClassifier(model, **PARAMETERS).fit(texts, matrix)
    predicted = classifier.predict(new)
    assert predicted.shape == expected.shape
    assert f1_score(expected, predicted, average="micro") > 0.65  # 0.57 for all labels
    probabilities = classifier.predict_proba(new)
    np.testing.assert_array_equal(predicted, (probabilities >= 0.5).astype(int))
    assert classifier.classes_.tolist() == [0, 1, 2]
    exact = (predicted == expected).all(axis=1).mean()
    assert classifier.score(new, expected) == pytest.approx(exact)
    sparse = BiLmClassifier(model, **PARAMETERS).fit(texts, csr_matrix(matrix))
    np.testing.assert_array_equal(sparse.predict(new), predicted)


def test_regressor_fits_numbers(model: Path) -> None:
    texts, numbers = numbered(300, 1)
    new, expected = numbered(60, 2)
    regressor = BiLmRegressor(model, **PARAMETERS).fit(texts, numbers)
    predicted = regressor.predict(new)
    assert np.corrcoef(predicted, expected)[0, 1] > 0.8
    assert regressor.score(new, expected) > 0.6
    errors = np.square(predicted - expected).sum() / np.square(expected - np.mean(expected)).sum()
    assert regressor.score(new, expected) == pytest.approx(1 - errors, abs=1e-5)
    copy = pickle.loads(pickle.dumps(regressor))
    np.testing.assert_array_equal(copy.predict(new), predicted)
    scores = cross_val_score(BiLmRegressor(model, **PARAMETERS), texts, numbers, cv=2)
    assert min(scores) > 0.5
    search = GridSearchCV(BiLmRegressor(model, **PARAMETERS), {"mix": ["top", "average"]}, cv=2)
    assert search.fit(texts[:60], numbers[:60]).best_params_["mix"] in ("top", "average")


def test_estimators_train_the_heads_of_classify(model: Path, tmp_path: Path) -> None:
    for target, rows in (("multilabel", label_texts), ("regression", number_texts)):
        train, test = rows(200, 1), rows(30, 2)
        classify(
            [
                f"--model={model}",
                f"--train={write_csv(tmp_path / 'train.csv', train)}",
                f"--test={write_csv(tmp_path / 'test.csv', test)}",
                f"--output={tmp_path / target}",
                f"--target={target}",
            ]
        )
        labels, texts = zip(*train, strict=True)
        new = [text for _, text in test]
        if target == "multilabel":
            matrix = [[int(name in names) for name in NAMES] for names in labels]
            got = BiLmClassifier(model).fit(texts, matrix).predict_proba(new)
            expected = TextLabeler.from_pretrained(tmp_path / target).predict_proba(new)
        else:
            got = BiLmRegressor(model).fit(texts, [float(x) for x in labels]).predict(new)
            expected = TextRegressor.from_pretrained(tmp_path / target).predict(new)
        np.testing.assert_allclose(got, expected, atol=1e-3)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([[0, 2], [1, 0]], "its values must be 0 and 1"),
        ([["a", "b"], ["b", "a"]], "its values must be 0 and 1"),
        ([[0, 1]], "inconsistent numbers of samples"),
        ([[0, 0], [0, 0]], "^no text has a label: all values of y are 0"),
        (np.array(["x", "x"]), "^y has only one class, 'x'; at least two are needed"),
    ],
)
def test_classifier_rejects_other_matrices(model: Path, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BiLmClassifier(model).fit(["a", "b"], y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "requires y to be passed"),
        ([1.0, np.nan], "NaN"),
        ([1.0, 1e39], "too large for float32"),
        ([1.0], "inconsistent numbers of samples"),
        ([3.0, 3.0], "^all 2 values of y are 3; regression needs different numbers"),
        (["good", "bad"], "could not convert"),
    ],
)
def test_regressor_rejects_invalid_numbers(model: Path, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BiLmRegressor(model).fit(["a", "b"], y)


def test_vectors_of_long_texts_are_those_of_windows(model: Path) -> None:
    texts, numbers = numbered(20, 1)
    long = [" ".join([text] * 3) for text in texts]
    windows, cut = (
        BiLmRegressor(model, epochs=1, max_words=5, long_texts=long_texts).fit(long, numbers)
        for long_texts in ("windows", "cut")
    )
    # Three windows with the same words have the mean and the maximum of one of them.
    np.testing.assert_allclose(windows.predict(long), windows.predict(texts), atol=1e-4)
    np.testing.assert_allclose(cut.predict(long), cut.predict(texts), atol=1e-4)
    np.testing.assert_allclose(windows.predict(long), cut.predict(long), atol=1e-4)


def test_two_texts_are_used_for_training_and_validation(model: Path) -> None:
    regressor = BiLmRegressor(model, epochs=2).fit(["a bank", "the river"], [1.0, 2.0])
    assert regressor.predict(["a bank"]).shape == (1,)
    with pytest.raises(ValueError, match="only 1 sample"):
        BiLmRegressor(model).fit(["a bank"], [1.0])
    with pytest.raises(ValueError, match="only 1 sample"):
        BiLmClassifier(model).fit(["a bank"], [[1, 0]])
