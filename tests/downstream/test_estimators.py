from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.sparse import issparse  # type: ignore[import-untyped]
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import Tags
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from bilm.embedder import Embedder
from bilm.model import BiLm
from bilm.pretrained import PretrainedBiLm
from bilm.tokenizers import WhitespaceTokenizer
from downstream import pooling
from downstream.estimators import BiLmVectorizer
from downstream.loaded_models import embedder_at
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
    """A number that is none is a missing text, as in a table of texts."""
    odd = [float(value) for value in row if not np.isfinite(float(value))]
    return odd[0] if odd else " ".join(_word(j, value) for j, value in enumerate(row))


def _word(column: int, value: float) -> str:
    """A feature's number and a row of letters whose case tells the value."""
    level = int(np.clip(np.round(4 * float(value)), -12, 12)) + 12
    return f"{column}" + "A" * level + "z" * (24 - level)


class VectorizerOnNumbers(_OnNumbers, BiLmVectorizer):
    pass


# The checks that cannot hold for texts, and why. docs/baselines.md repeats them.
EXPECTED_FAILED_CHECKS = {
    "check_complex_data": "numbers of any kind are refused as numbers: 'text 0 is (0.3+0.1j)'",
    "check_estimators_empty_data_messages": "a text has no columns, so there cannot be none",
    "check_fit2d_predict1d": "a one-dimensional array is what texts come in; it needs no reshaping",
}


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [VectorizerOnNumbers(MODEL, tokenizer="whitespace")],
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
def test_vectors_are_the_pooled_mix(vectorizer: BiLmVectorizer, pooling: str) -> None:
    shares = [0.5, 0.25, -1.0]
    vectorizer.set_params(pooling=pooling, layers=shares)
    words = np.einsum("l,lwd->wd", shares, _layers(TEXTS[1]))
    parts = {"mean": [words.mean(0)], "max": [words.max(0)]}
    parts["mean_max"] = parts["mean"] + parts["max"]
    got = vectorizer.fit_transform(TEXTS)
    np.testing.assert_allclose(got[1], np.concatenate(parts[pooling]), atol=1e-5)
    assert got.dtype == np.float32
    assert len(vectorizer.get_feature_names_out()) == got.shape[1]


@pytest.mark.parametrize(
    ("layers", "chosen"), [("top", [2]), (0, [0]), (np.int64(1), [1]), ("all", [0, 1, 2])]
)
def test_layers_are_chosen(vectorizer: BiLmVectorizer, layers: Any, chosen: list[int]) -> None:
    got = vectorizer.set_params(layers=layers).fit_transform(TEXTS)[1]
    expected = _layers(TEXTS[1]).mean(axis=1)[chosen].ravel()
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_average_is_the_plain_one(vectorizer: BiLmVectorizer) -> None:
    got = vectorizer.fit_transform(TEXTS)[1]
    np.testing.assert_allclose(got, _layers(TEXTS[1]).mean(axis=(0, 1)), atol=1e-5)


def test_any_shape_of_texts_will_do(vectorizer: BiLmVectorizer) -> None:
    expected = vectorizer.fit_transform(TEXTS)
    for same in (tuple(TEXTS), np.array(TEXTS), np.array(TEXTS, dtype=object)[:, None]):
        np.testing.assert_array_equal(vectorizer.transform(same), expected)


def test_groups_of_texts_change_nothing(
    vectorizer: BiLmVectorizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = vectorizer.fit_transform(TEXTS)
    monkeypatch.setattr(pooling, "_GROUP_WORDS", 5)
    np.testing.assert_allclose(vectorizer.transform(TEXTS), expected, atol=1e-6)


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
        ("state", "carry", "state is 'carry'"),
        ("layers", "bottom", "layers is 'bottom'"),
        ("layers", 3, "layers is 3; the model's layers are 0 to 2"),
        ("layers", [1.0, 2.0], "each of the 3 layers"),
        ("batch_size", 0, "batch_size is 0; it must be at least 1"),
        ("max_words", 0, "max_words is 0"),
        ("tokenizer", "sentencepiece", "tokenizer is 'sentencepiece'"),
        ("tokenizer", None, "does not know how its text was tokenised"),
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
    assert np.abs(clone(one).fit_transform(TEXTS) - before).max() > 1e-6


def test_in_a_pipeline_with_a_search() -> None:
    texts, labels = coloured_texts(60)
    pipeline = make_pipeline(
        BiLmVectorizer(MODEL, tokenizer="whitespace"), LogisticRegression(C=1e4, max_iter=500)
    )
    assert cross_val_score(pipeline, texts, labels, cv=3).mean() > 0.9
    search = GridSearchCV(pipeline, {"bilmvectorizer__layers": ["average", 0]}, cv=2)
    assert search.fit(texts, labels).score(texts, labels) > 0.9


def coloured_texts(count: int) -> tuple[list[str], list[str]]:
    """Texts of two classes, told apart by one of their words."""
    rng = np.random.default_rng(0)
    words = {"warm": ["red", "orange"], "cold": ["blue", "teal"]}
    labels = [("warm", "cold")[i % 2] for i in range(count)]
    fill = [rng.choice(["house", "door", "window", "roof"], size=3) for _ in labels]
    texts = [
        " ".join([*f, rng.choice(words[label])]) for f, label in zip(fill, labels, strict=True)
    ]
    return texts, labels


def _layers(text: str) -> npt.NDArray[np.float32]:
    return Embedder.from_published(MODEL / "options.json", MODEL / "weights.hdf5").embed(
        [text.split()]
    )[0]
