from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.sparse import issparse  # type: ignore[import-untyped]
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import Tags
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from bilm.embedding.embedder import Embedder
from bilm.errors import ConfigError
from bilm.model.language_model import BiLm
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.tokenizers import WhitespaceTokenizer
from downstream.estimators import BiLmClassifier, BiLmVectorizer
from downstream.features.loaded_models import embedder_at
from tests.conftest import GOLDEN, tiny_model_config

MODEL = GOLDEN  # 16 dimensions a direction, two layers of LSTMs
TEXTS = ["The bank floods .", "The bank lends money to the other bank .", "Hello !"]


class _OnNumbers:
    """scikit-learn's checks bring tables of numbers: each row is written out as a text.

    All else is the estimator's own. Without this the checks would not run at all: for an estimator
    of texts scikit-learn leaves out every one but the first.
    """

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.one_d_array = False
        tags.input_tags.two_d_array = True
        return tags

    def _check_texts(self, X: Any, reset: bool) -> list[str]:
        table = np.asarray(X)
        if not issparse(X) and table.ndim == 2 and table.shape[1] and np.isrealobj(table):
            if reset:
                self._num_columns = table.shape[1]
            elif table.shape[1] != self._num_columns:
                raise ValueError(
                    f"X has {table.shape[1]} features, but {type(self).__name__} is expecting "
                    f"{self._num_columns} features as input"
                )
            X = [_text(row) for row in table]
        texts: list[str] = super()._check_texts(X, reset)  # type: ignore[misc]
        if reset:
            self.n_features_in_ = self._num_columns
        return texts


def _text(row: npt.NDArray[Any]) -> str | float:
    """The larger a number, the more often its column's first word stands in place of its second.

    A number that is none is a missing text, as in a table of texts.
    """
    odd = [float(value) for value in row if not np.isfinite(float(value))]
    if odd:
        return odd[0]
    levels = [int(np.clip(np.round(4 * float(value)), -8, 8)) + 8 for value in row]
    return " ".join(
        " ".join([f"much{j}"] * level + [f"few{j}"] * (16 - level))
        for j, level in enumerate(levels)
    )


class VectorizerOnNumbers(_OnNumbers, BiLmVectorizer):
    pass


class ClassifierOnNumbers(_OnNumbers, BiLmClassifier):
    pass


# The checks that cannot hold for texts, and why. docs/estimators.md repeats them.
EXPECTED_FAILED_CHECKS = {
    "check_complex_data": "numbers of any kind are refused as numbers: 'text 0 is (0.3+0.1j)'",
    "check_estimators_empty_data_messages": "a text has no columns, so there cannot be none",
    "check_fit2d_predict1d": "a one-dimensional array is what texts come in; it needs no reshaping",
}


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        VectorizerOnNumbers(MODEL, tokenizer="whitespace"),
        ClassifierOnNumbers(
            MODEL,
            tokenizer="whitespace",
            mix="layer:0",
            pooling="mean",
            batch_size=32,
            learning_rate=0.05,
            dropout=0.0,
            weight_decay=0.0,
            epochs=30,
            patience=30,
        ),
    ],
    expected_failed_checks=lambda _: EXPECTED_FAILED_CHECKS,
    xfail_strict=True,
)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.fixture
def vectorizer() -> BiLmVectorizer:
    return BiLmVectorizer(MODEL, tokenizer="whitespace")


@pytest.mark.filterwarnings("ignore:Can't test estimator")
def test_as_they_stand_they_read_texts_and_no_tables(vectorizer: BiLmVectorizer) -> None:
    tags = vectorizer.__sklearn_tags__().input_tags
    assert (tags.string, tags.one_d_array, tags.two_d_array) == (True, True, False)
    check_estimator(vectorizer)


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
def test_layers_are_chosen(vectorizer: BiLmVectorizer, mix: Any, chosen: list[int]) -> None:
    got = vectorizer.set_params(mix=mix).fit_transform(TEXTS)[1]
    expected = _layers(TEXTS[1]).mean(axis=1)[chosen].ravel()
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_average_is_the_plain_one(vectorizer: BiLmVectorizer) -> None:
    got = vectorizer.fit_transform(TEXTS)[1]
    np.testing.assert_allclose(got, _layers(TEXTS[1]).mean(axis=(0, 1)), atol=1e-5)


def test_any_shape_of_texts_will_do(vectorizer: BiLmVectorizer) -> None:
    expected = vectorizer.fit_transform(TEXTS)
    for same in (tuple(TEXTS), np.array(TEXTS), np.array(TEXTS, dtype=object)[:, None]):
        np.testing.assert_array_equal(vectorizer.transform(same), expected)


def test_no_words_are_zeros_and_long_texts_are_cut(vectorizer: BiLmVectorizer) -> None:
    vectorizer.set_params(max_words=2, pooling="max").fit(TEXTS)
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
def test_what_is_no_list_of_texts_is_refused(
    vectorizer: BiLmVectorizer, texts: Any, message: str
) -> None:
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
        ("tokenizer", "sentencepiece", "tokenizer is 'sentencepiece'"),
        ("tokenizer", None, "has no tokenizer, so it cannot read raw text; set tokenizer to"),
    ],
)
def test_wrong_parameters_are_told_in_fit(
    vectorizer: BiLmVectorizer, parameter: str, value: Any, message: str
) -> None:
    vectorizer.set_params(**{parameter: value})
    with pytest.raises(ValueError, match=message):
        vectorizer.fit(TEXTS)


def test_a_model_is_loaded_once_and_again_when_it_changes(tmp_path: Path) -> None:
    first = PretrainedBiLm(BiLm(tiny_model_config(), None), tokenizer=WhitespaceTokenizer())
    first.save_pretrained(tmp_path / "model")
    one = BiLmVectorizer(tmp_path / "model").fit(TEXTS)
    assert embedder_at(tmp_path / "model") is embedder_at(str(tmp_path / "model"))
    before = one.transform(TEXTS)
    second = PretrainedBiLm(BiLm(tiny_model_config(), None), tokenizer=WhitespaceTokenizer())
    second.save_pretrained(tmp_path / "model", overwrite=True)
    with pytest.raises(ValueError, match="not the one that this BiLmVectorizer was fitted with"):
        one.transform(TEXTS)
    assert np.abs(clone(one).fit_transform(TEXTS) - before).max() > 1e-6


def test_the_best_model_of_a_run_is_looked_at(tmp_path: Path) -> None:
    def save() -> None:
        model = BiLm(tiny_model_config(), None)
        pretrained = PretrainedBiLm(model, tokenizer=WhitespaceTokenizer())
        pretrained.save_pretrained(tmp_path / "run" / "best", overwrite=True)

    save()
    texts, labels = coloured_texts(20)
    fitted = BiLmClassifier(tmp_path / "run", epochs=1).fit(texts, labels)
    fitted.predict(texts)
    save()
    with pytest.raises(ValueError, match="not the one that this BiLmClassifier was fitted with"):
        fitted.predict(texts)


def test_in_a_pipeline_with_a_search() -> None:
    texts, labels = coloured_texts(60)
    pipeline = make_pipeline(
        BiLmVectorizer(MODEL, tokenizer="whitespace"), LogisticRegression(C=1e4, max_iter=500)
    )
    assert cross_val_score(pipeline, texts, labels, cv=3).mean() > 0.9
    search = GridSearchCV(pipeline, {"bilmvectorizer__mix": ["average", "layer:0"]}, cv=2)
    assert search.fit(texts, labels).score(texts, labels) > 0.9


def coloured_texts(count: int) -> tuple[list[str], list[str]]:
    """Texts of two classes, told apart by half of their words."""
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
    return BiLmClassifier(
        MODEL, tokenizer="whitespace", learning_rate=0.05, batch_size=8, epochs=15, patience=15
    )


@pytest.mark.parametrize("mix", ["trainable", "learned", "average", "frozen", "top", "layer:1"])
def test_every_mix_learns(classifier: BiLmClassifier, mix: str) -> None:
    texts, labels = coloured_texts(60)
    classifier.set_params(mix=mix).fit(texts[:40], labels[:40])
    assert classifier.score(texts[40:], labels[40:]) >= 0.8
    assert list(classifier.classes_) == ["cold", "warm"]
    assert classifier.mix_shares_ is not None
    assert sum(classifier.mix_shares_) == pytest.approx(1.0)
    assert classifier.n_iter_ == len(classifier.history_.train_loss)


def test_probabilities_are_those_of_the_classes(classifier: BiLmClassifier) -> None:
    texts, labels = coloured_texts(40)
    probabilities = classifier.fit(texts, labels).predict_proba([*texts, ""])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    chosen = classifier.classes_[probabilities.argmax(axis=1)]
    np.testing.assert_array_equal(classifier.predict([*texts, ""]), chosen)


def test_the_penalty_reaches_the_mix(classifier: BiLmClassifier) -> None:
    texts, labels = coloured_texts(40)
    classifier.set_params(validation_share=None)
    free, held = (
        classifier.set_params(penalty=penalty).fit(texts, labels).mix_shares_
        for penalty in (0.0, 1.0)
    )
    assert free is not None
    assert held is not None
    assert np.abs(np.subtract(free, held)).max() > 1e-3


def test_the_seed_decides(classifier: BiLmClassifier) -> None:
    texts, labels = coloured_texts(40)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one = classifier.fit(texts, labels).predict_proba(texts)
    np.testing.assert_array_equal(clone(classifier).fit(texts, labels).predict_proba(texts), one)
    other = clone(classifier).set_params(random_state=1).fit(texts, labels)
    assert np.abs(other.predict_proba(texts) - one).max() > 1e-4
    assert torch.equal(torch.random.get_rng_state(), before)  # the caller's own is left alone


def test_a_fitted_copy_predicts_the_same(classifier: BiLmClassifier) -> None:
    texts, labels = coloured_texts(40)
    copied = copy.deepcopy(classifier.fit(texts, labels))
    np.testing.assert_array_equal(copied.predict_proba(texts), classifier.predict_proba(texts))


def test_one_text_a_class_is_enough(classifier: BiLmClassifier) -> None:
    texts, labels = coloured_texts(2)
    classifier.set_params(dropout=0.0, epochs=80, patience=80).fit(texts, labels)
    assert classifier.score(texts, labels) == 1.0


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("mix", "sum", "'sum' is no mix"),
        ("epochs", 0, "epochs"),
        ("dropout", 1.0, "dropout"),
        ("penalty", -1.0, "penalty"),
        ("validation_share", 1.5, "must be in"),
        ("mix", "layer:7", "the model has 3 layers"),
    ],
)
def test_wrong_parameters_of_the_head_are_told_in_fit(
    classifier: BiLmClassifier, parameter: str, value: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        classifier.set_params(**{parameter: value}).fit(*coloured_texts(10))


def test_a_search_over_the_classifiers_parameters(classifier: BiLmClassifier) -> None:
    texts, labels = coloured_texts(48)
    mixes = {"mix": ["top", "layer:0"], "pooling": ["mean"], "hidden_dim": np.array([0])}
    search = GridSearchCV(classifier, mixes, cv=2)
    search.fit(texts, labels)
    assert search.best_score_ > 0.9
    assert cross_val_score(make_pipeline(search.best_estimator_), texts, labels, cv=2).min() > 0.8


def test_few_texts_have_small_batches_unless_told_otherwise(classifier: BiLmClassifier) -> None:
    texts, labels = coloured_texts(48)
    told = classifier.set_params(batch_size=256).fit(texts, labels)
    small = clone(classifier).set_params(batch_size=None).fit(texts, labels)
    same = clone(classifier).set_params(batch_size=8).fit(texts, labels)
    np.testing.assert_array_equal(small.predict_proba(texts), same.predict_proba(texts))
    assert np.abs(small.predict_proba(texts) - told.predict_proba(texts)).max() > 1e-3
