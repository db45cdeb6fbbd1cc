from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from bilm.embedding.embedder import Embedder
from bilm.errors import ConfigError
from bilm.model.language_model import BiLm
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.tokenizers import WhitespaceTokenizer
from downstream.estimators import BiLmClassifier, BiLmVectorizer
from tests.conftest import GOLDEN, tiny_model_config

MODEL = GOLDEN  # 16 dimensions per direction, two LSTM layers
TEXTS = ["The bank floods .", "The bank lends money to the other bank .", "Hello !"]


@pytest.fixture
def vectorizer() -> BiLmVectorizer:
    return BiLmVectorizer(MODEL, tokenizer="whitespace")


@pytest.mark.parametrize("pooling", ["mean", "max", "mean_max"])
def test_vectors_are_a_mix_of_pooled_layers(vectorizer: BiLmVectorizer, pooling: str) -> None:
    shares = [0.5, 0.25, -1.0]
    layers = _layers(TEXTS[1])
    poolings = {"mean": [layers.mean(axis=1)], "max": [layers.max(axis=1)]}
    poolings["mean_max"] = poolings["mean"] + poolings["max"]
    expected = np.concatenate([np.einsum("l,ld->d", shares, part) for part in poolings[pooling]])
    got = vectorizer.set_params(pooling=pooling, mix=shares).fit_transform(TEXTS)
    np.testing.assert_allclose(got[1], expected, atol=1e-5)
    assert got.dtype == np.float32
    assert len(vectorizer.get_feature_names_out()) == got.shape[1]


@pytest.mark.parametrize(
    ("mix", "chosen"), [("top", [2]), ("layer:0", [0]), ("layer:1", [1]), ("all", [0, 1, 2])]
)
def test_mix_selects_layers(vectorizer: BiLmVectorizer, mix: Any, chosen: list[int]) -> None:
    got = vectorizer.set_params(mix=mix).fit_transform(TEXTS)[1]
    expected = _layers(TEXTS[1]).mean(axis=1)[chosen].ravel()
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_average_is_the_mean_of_layers(vectorizer: BiLmVectorizer) -> None:
    got = vectorizer.fit_transform(TEXTS)[1]
    np.testing.assert_allclose(got, _layers(TEXTS[1]).mean(axis=(0, 1)), atol=1e-5)


def test_accepts_tuples_arrays_and_columns(vectorizer: BiLmVectorizer) -> None:
    expected = vectorizer.fit_transform(TEXTS)
    for same in (tuple(TEXTS), np.array(TEXTS), np.array(TEXTS, dtype=object)[:, None]):
        np.testing.assert_array_equal(vectorizer.transform(same), expected)


def test_empty_texts_are_zeros_and_long_texts_are_truncated(vectorizer: BiLmVectorizer) -> None:
    vectorizer.set_params(max_words=2, long_texts="cut", pooling="max").fit(TEXTS)
    empty, cut, short = vectorizer.transform(["", "the bank floods again", "the bank"])
    assert not empty.any()
    np.testing.assert_allclose(cut, short, atol=1e-6)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("a text", "pass \\[text\\]"),
        ([1.0, 2.0], "text 0 is 1.0"),
        (["a", None], "text 1 is None"),
        (np.array(["a", np.nan], dtype=object), "text 1 is NaN"),
        (np.array([["a", "b"]]), "shape \\(1, 2\\)"),
        ([], "0 sample"),
    ],
)
def test_rejects_invalid_texts(vectorizer: BiLmVectorizer, texts: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        vectorizer.fit(texts)
    with pytest.raises(ValueError, match=message):
        vectorizer.fit(TEXTS).transform(texts)


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("model", None, "model is None; it must be the path"),
        ("pooling", "sum", "pooling is 'sum'; it must be one of mean, max, mean_max"),
        ("mix", "bottom", "mix is 'bottom'; it must be one of average, top, all, layer:0"),
        ("mix", "layer:3", "mix is 'layer:3'"),
        ("mix", [1.0, 2.0], "each of the 3 layers"),
        ("max_words", 0, "max_words is 0"),
        ("long_texts", "all", "long_texts is 'all'; it must be one of windows, cut"),
        ("tokenizer", "sentencepiece", "tokenizer is 'sentencepiece'"),
        ("tokenizer", None, "has no tokenizer, so it cannot read raw text; set tokenizer to"),
    ],
)
def test_fit_rejects_invalid_parameters(
    vectorizer: BiLmVectorizer, parameter: str, value: Any, message: str
) -> None:
    vectorizer.set_params(**{parameter: value})
    with pytest.raises(ValueError, match=message):
        vectorizer.fit(TEXTS)


def test_rejects_changed_model(tmp_path: Path) -> None:
    first = PretrainedBiLm(BiLm(tiny_model_config(), None), tokenizer=WhitespaceTokenizer())
    first.save_pretrained(tmp_path / "model")
    one = BiLmVectorizer(tmp_path / "model").fit(TEXTS)
    before = one.transform(TEXTS)
    second = PretrainedBiLm(BiLm(tiny_model_config(), None), tokenizer=WhitespaceTokenizer())
    second.save_pretrained(tmp_path / "model", overwrite=True)
    with pytest.raises(ValueError, match="not the one that this BiLmVectorizer was fitted with"):
        one.transform(TEXTS)
    assert np.abs(clone(one).fit_transform(TEXTS) - before).max() > 1e-6


def test_rejects_changed_best_model_of_a_run(tmp_path: Path) -> None:
    def save() -> None:
        model = BiLm(tiny_model_config(), None)
        pretrained = PretrainedBiLm(model, tokenizer=WhitespaceTokenizer())
        pretrained.save_pretrained(tmp_path / "run" / "best", overwrite=True)

    save()
    texts, labels = colored_texts(20)
    fitted = BiLmClassifier(tmp_path / "run", epochs=1).fit(texts, labels)
    fitted.predict(texts)
    save()
    with pytest.raises(ValueError, match="not the one that this BiLmClassifier was fitted with"):
        fitted.predict(texts)


def test_supports_pipeline_and_grid_search() -> None:
    texts, labels = colored_texts(60)
    pipeline = make_pipeline(
        BiLmVectorizer(MODEL, tokenizer="whitespace"), LogisticRegression(C=1e4, max_iter=500)
    )
    assert cross_val_score(pipeline, texts, labels, cv=3).mean() > 0.9
    search = GridSearchCV(pipeline, {"bilmvectorizer__mix": ["average", "layer:0"]}, cv=2)
    assert search.fit(texts, labels).score(texts, labels) > 0.9


def colored_texts(count: int) -> tuple[list[str], list[str]]:
    """Return texts of two classes, which differ in half of their words."""
    rng = np.random.default_rng(0)
    words = {"warm": ["red", "orange"], "cold": ["blue", "teal"]}
    labels = [("warm", "cold")[i % 2] for i in range(count)]
    texts = []
    for label in labels:
        chosen = [*rng.choice(["house", "door", "roof"], 3), *rng.choice(words[label], 3)]
        texts.append(" ".join(rng.permutation(chosen)))
    return texts, labels


def _layers(text: str) -> npt.NDArray[np.float32]:
    return Embedder.from_published(MODEL / "options.json", MODEL / "weights.hdf5").embed(
        [text.split()]
    )[0]


@pytest.fixture
def classifier() -> BiLmClassifier:
    """Return a linear classifier, which learns from few texts with a high learning rate."""
    return BiLmClassifier(
        MODEL,
        tokenizer="whitespace",
        learning_rate=0.05,
        batch_size=8,
        epochs=15,
        patience=15,
        hidden_dim=0,
    )


@pytest.mark.parametrize("mix", ["trainable", "learned", "average", "frozen", "top", "layer:1"])
def test_every_mix_learns(classifier: BiLmClassifier, mix: str) -> None:
    texts, labels = colored_texts(60)
    classifier.set_params(mix=mix).fit(texts[:40], labels[:40])
    assert classifier.score(texts[40:], labels[40:]) >= 0.8
    assert list(classifier.classes_) == ["cold", "warm"]
    assert classifier.mix_shares_ is not None
    assert sum(classifier.mix_shares_) == pytest.approx(1.0)
    assert classifier.n_iter_ == len(classifier.history_.train_loss)


def test_predicts_the_most_probable_class(classifier: BiLmClassifier) -> None:
    texts, labels = colored_texts(40)
    probabilities = classifier.fit(texts, labels).predict_proba([*texts, ""])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    chosen = classifier.classes_[probabilities.argmax(axis=1)]
    np.testing.assert_array_equal(classifier.predict([*texts, ""]), chosen)


def test_penalty_changes_the_mix(classifier: BiLmClassifier) -> None:
    texts, labels = colored_texts(40)
    classifier.set_params(validation_share=None)
    free, held = (
        classifier.set_params(penalty=penalty).fit(texts, labels).mix_shares_
        for penalty in (0.0, 1.0)
    )
    assert free is not None
    assert held is not None
    assert np.abs(np.subtract(free, held)).max() > 1e-3


def test_seed_determines_the_result(classifier: BiLmClassifier) -> None:
    texts, labels = colored_texts(40)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one = classifier.fit(texts, labels).predict_proba(texts)
    np.testing.assert_array_equal(clone(classifier).fit(texts, labels).predict_proba(texts), one)
    other = clone(classifier).set_params(random_state=1).fit(texts, labels)
    assert np.abs(other.predict_proba(texts) - one).max() > 1e-4
    assert torch.equal(torch.random.get_rng_state(), before)  # the caller's state is unchanged


def test_copy_gives_same_predictions(classifier: BiLmClassifier) -> None:
    texts, labels = colored_texts(40)
    copied = copy.deepcopy(classifier.fit(texts, labels))
    np.testing.assert_array_equal(copied.predict_proba(texts), classifier.predict_proba(texts))


def test_accepts_one_text_per_class(classifier: BiLmClassifier) -> None:
    texts, labels = colored_texts(2)
    classifier.set_params(dropout=0.0, epochs=80, patience=80).fit(texts, labels)
    assert classifier.score(texts, labels) == 1.0


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("mix", "sum", "^mix is 'sum'; it must be one of trainable, .*, top, layer:K$"),
        ("mix", "none", "^mix is 'none'; it must be one of trainable, .*, top, layer:K$"),
        ("epochs", 0, "^epochs is 0; it must be greater than or equal to 1$"),
        ("dropout", 1.0, "^dropout is 1.0; it must be less than 1$"),
        ("penalty", -1.0, "^penalty is -1.0; it must be greater than or equal to 0$"),
        ("penalty", float("nan"), "^penalty is NaN; it must be a finite number$"),
        ("hidden_dim", -1, "^hidden_dim is -1; it must be"),
        ("hidden_dim", 10**9, "^hidden_dim is 1000000000; it must be"),
        ("validation_share", 1.5, "must be between"),
        ("mix", "layer:7", "the model has 3 layers"),
    ],
)
def test_fit_rejects_invalid_head_parameters(
    classifier: BiLmClassifier, parameter: str, value: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        classifier.set_params(**{parameter: value}).fit(*colored_texts(10))


def test_supports_search_over_classifier_parameters(classifier: BiLmClassifier) -> None:
    texts, labels = colored_texts(48)
    mixes = {"mix": ["top", "layer:0"], "pooling": ["mean"], "hidden_dim": np.array([0])}
    search = GridSearchCV(classifier, mixes, cv=2)
    search.fit(texts, labels)
    assert search.best_score_ > 0.9
    assert cross_val_score(make_pipeline(search.best_estimator_), texts, labels, cv=2).min() > 0.8


def test_default_batch_size_depends_on_the_number_of_texts(classifier: BiLmClassifier) -> None:
    texts, labels = colored_texts(48)
    large = classifier.set_params(batch_size=256).fit(texts, labels)
    small = clone(classifier).set_params(batch_size=None).fit(texts, labels)
    same = clone(classifier).set_params(batch_size=8).fit(texts, labels)
    np.testing.assert_array_equal(small.predict_proba(texts), same.predict_proba(texts))
    assert np.abs(small.predict_proba(texts) - large.predict_proba(texts)).max() > 1e-3
