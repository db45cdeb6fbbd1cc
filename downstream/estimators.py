"""scikit-learn estimators over a frozen biLM: raw texts in, vectors or classes out.

Both go into a Pipeline, cross_val_score and GridSearchCV. The model is named by its path and loaded
once a process, so copies are cheap. Reading the texts is nearly all of the cost, and is paid in
every `fit`; `python -m downstream.classify` compares many heads on one reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import issparse  # type: ignore[import-untyped]
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils import Tags, assert_all_finite, check_consistent_length, check_random_state
from sklearn.utils import column_or_1d as one_dimensional
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from bilm.embedding.embedder import Embedder
from bilm.errors import CorpusError
from bilm.files.sections import parse_section
from bilm.text.tokenizers import (
    NAMES,
    Tokenizer,
    TokenizerSpec,
    load_tokenizer,
    require_tokenizer,
)
from downstream.features.batches import Ids, PooledTexts, Source, Subset, poolings_of
from downstream.features.loaded_models import digest_at, embedder_at
from downstream.features.texts_to_layers import Layers, pooled_layers
from downstream.heads.mixes import check_one_of, layer_shares
from downstream.heads.text_model import TextModel
from downstream.settings.sections import POOLED_HEADS, Settings
from downstream.tasks.classification import split_validation
from downstream.training.fit import fit, predict_probabilities

Texts = Sequence[str] | npt.NDArray[Any]

Labels = Sequence[Any] | npt.NDArray[Any]


class _ReadsTexts(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """What both estimators share: texts to the pooled layers of the model."""

    model: Path | str | None
    pooling: str
    max_words: int
    tokenizer: str | None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags

    def _check_texts(self, X: Texts, reset: bool) -> list[str]:
        """`X` as a list of strings; in `fit`, `reset` is true."""
        if reset:
            self.n_features_in_ = 1  # a text
        return as_texts(X)

    def _check_reading(self) -> Embedder:
        """The model, having checked the parameters that concern reading."""
        if not isinstance(self.model, str | Path):
            raise ValueError(
                f"model is {self.model!r}; it must be the path of a model directory, of a run, or "
                "of a directory with options.json and weights.hdf5"
            )
        check_one_of("pooling", self.pooling, POOLED_HEADS)
        _at_least("max_words", self.max_words, 1)
        embedder = embedder_at(self.model)
        self._tokenizer(embedder)
        return embedder

    def _remember_model(self) -> None:
        """At the end of `fit`: only this model's vectors mean anything to what was fitted."""
        self.model_digest_ = digest_at(str(self.model))

    def _fitted_model(self) -> Embedder:
        check_is_fitted(self)
        embedder = self._check_reading()
        if digest_at(str(self.model)) != self.model_digest_:
            raise ValueError(
                f"the model at {self.model} is not the one that this {type(self).__name__} was "
                "fitted with; bring that one back, or fit again"
            )
        return embedder

    def _read(self, texts: list[str], embedder: Embedder) -> Layers:
        tokenizer = self._tokenizer(embedder)
        words = [tokenizer.tokenize(text)[: self.max_words] for text in texts]
        return pooled_layers(embedder, words)

    def _tokenizer(self, embedder: Embedder) -> Tokenizer:
        if self.tokenizer is not None:
            check_one_of("tokenizer", self.tokenizer, NAMES[:2])
            return load_tokenizer(TokenizerSpec.model_validate({"name": self.tokenizer}), Path())
        remedy = f"set tokenizer to one of {', '.join(NAMES[:2])}"
        return require_tokenizer(embedder.pretrained.tokenizer, remedy, str(self.model), ValueError)


class BiLmVectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _ReadsTexts):  # type: ignore[misc]
    """Raw texts to one vector each: the layers pooled over the words, in a fixed mix.

    `fit` learns nothing from the texts. A text without words becomes zeros.

    Args:
        model: path of a model directory, a run, or a directory of published files.
        mix: "average" of all layers, the "top" one, "layer:K" (0 is the token encoder), "all" side
            by side, or one share per layer for a weighted sum.
        pooling: "mean" or "max" over the words, or both side by side: "mean_max". As in the heads
            of `downstream.classify`, each layer is pooled first, then mixed.
        max_words: longer texts are cut.
        tokenizer: "whitespace" or "moses", for a model that does not know its own.
    """

    def __init__(
        self,
        model: Path | str | None = None,
        *,
        mix: str | Sequence[float] = "average",
        pooling: str = "mean",
        max_words: int = 400,
        tokenizer: str | None = None,
    ) -> None:
        self.model = model
        self.mix = mix
        self.pooling = pooling
        self.max_words = max_words
        self.tokenizer = tokenizer

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # texts in, float32 out
        return tags

    def fit(self, X: Texts, y: Any = None) -> Self:
        """Check the parameters against the model; the texts are only looked at."""
        self._check_texts(X, reset=True)
        embedder = self._check_reading()
        shares = layer_shares(self.mix, embedder.num_layers)
        self._n_features_out = len(shares) * embedder.dim * len(poolings_of(self.pooling))
        self._remember_model()
        return self

    def transform(self, X: Texts) -> npt.NDArray[np.float32]:
        """The vectors of the texts: (texts, features)."""
        embedder = self._fitted_model()
        texts = self._check_texts(X, reset=False)
        shares = layer_shares(self.mix, embedder.num_layers)
        pooled = self._read(texts, embedder)[:, poolings_of(self.pooling)]
        mixed: npt.NDArray[np.float32] = np.einsum("ol,tpld->tpod", shares, pooled)
        return mixed.reshape(len(texts), -1)  # (texts, poolings * outputs * dim)


class BiLmClassifier(ClassifierMixin, _ReadsTexts):  # type: ignore[misc]
    """Raw texts to classes: a frozen biLM, a mix of its pooled layers, a linear head.

    The head is that of `downstream.classify`, trained in the same way: AdamW, the epoch of the best
    validation accuracy kept. Same `random_state`, same result.

    Args:
        model: path of a model directory, a run, or a directory of published files.
        mix: "trainable", "frozen", "learned", "average", "top" or "layer:K".
        pooling: "mean" or "max" over the words, or both side by side: "mean_max".
        penalty: the lambda of `lambda * ||w||^2` on the weights of a trainable mix.
        epochs: at most.
        learning_rate: the highest; it falls to 0 at the last epoch.
        batch_size: texts a step; by default 512, or fewer where the texts are few.
        dropout: share of the text's vector set to zero in training.
        weight_decay: of the head.
        hidden_dim: width of a hidden layer before the classes; 0 for none.
        validation_share: of each class, held out of `fit` to choose the epoch. With None, or where
            no class has two texts, all texts train, and the training accuracy chooses.
        patience: stop after so many epochs without a better one.
        max_words: longer texts are cut.
        tokenizer: "whitespace" or "moses", for a model that does not know its own.
        random_state: decides first weights, order, dropout and the texts held out.

    After `fit`: `classes_`, `head_`, `history_` (by epoch), `mix_shares_` (of each layer, or None
    where there is nothing to tell), `n_iter_` (epochs).
    """

    def __init__(
        self,
        model: Path | str | None = None,
        *,
        mix: str = "trainable",
        pooling: str = "mean_max",
        penalty: float = 1e-3,
        epochs: int = 20,
        learning_rate: float = 1e-3,
        batch_size: int | None = None,
        dropout: float = 0.3,
        weight_decay: float = 0.01,
        hidden_dim: int = 0,
        validation_share: float | None = 0.1,
        patience: int = 4,
        max_words: int = 400,
        tokenizer: str | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.model = model
        self.mix = mix
        self.pooling = pooling
        self.penalty = penalty
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.dropout = dropout
        self.weight_decay = weight_decay
        self.hidden_dim = hidden_dim
        self.validation_share = validation_share
        self.patience = patience
        self.max_words = max_words
        self.tokenizer = tokenizer
        self.random_state = random_state

    def fit(self, X: Texts, y: Labels) -> Self:
        """Read the texts once, and train the mix and the head."""
        texts = self._check_texts(X, reset=True)
        labels = self._check_labels(y, texts)
        embedder = self._check_reading()
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        train, validation = self._split(labels, seed)
        settings = self._settings(seed)
        source = PooledTexts(self._read(texts, embedder), self.pooling)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.head_ = TextModel(
                self.mix,
                settings.mix,
                settings.head,
                num_layers=embedder.num_layers,
                dim=embedder.dim,
                vector_dim=0,
                num_classes=len(self.classes_),
                seed=seed,
            )
            self.history_ = fit(
                self.head_,
                *(Subset(source, train), labels[train]),
                *(Subset(source, validation), labels[validation]),
                settings,
                seed,
            )
        self.head_.eval()
        self.n_iter_ = len(self.history_.train_loss)
        self.mix_shares_ = self.head_.shares().get("input")
        self._remember_model()
        return self

    def predict_proba(self, X: Texts) -> npt.NDArray[np.float32]:
        """The probability of each class (texts, classes), in the order of `classes_`."""
        embedder = self._fitted_model()
        texts = self._check_texts(X, reset=False)
        source: Source = PooledTexts(self._read(texts, embedder), self.pooling)
        return predict_probabilities(self.head_, source)

    def predict(self, X: Texts) -> npt.NDArray[Any]:
        """The likeliest class of each text."""
        probabilities = self.predict_proba(X)
        chosen: npt.NDArray[Any] = self.classes_[probabilities.argmax(axis=1)]
        return chosen

    def _check_labels(self, y: Labels | None, texts: list[str]) -> Ids:
        """The labels as places in `classes_`."""
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        labels = one_dimensional(y, warn=True)
        if labels.dtype.kind == "f":
            assert_all_finite(labels)
        check_consistent_length(texts, labels)
        check_classification_targets(labels)
        self.classes_, ids = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class only, {self.classes_[0]!r}; at least two are needed")
        return ids.astype(np.int64)

    def _split(self, labels: Ids, seed: int) -> tuple[Ids, Ids]:
        everything = np.arange(len(labels))
        if self.validation_share is None:
            return everything, everything
        try:
            return split_validation(labels, self.validation_share, seed)
        except CorpusError:  # no class has two texts
            return everything, everything

    def _settings(self, seed: int) -> Settings:
        """The parameters as the settings that training reads, checked as strictly."""
        unused = "-"  # a head alone is trained here: files and places do not concern it
        tree = {
            "model": unused,
            "output": unused,
            "data": {"train": unused, "test": unused},
            "mix": {"kinds": [self.mix], "penalty": self.penalty},
            "head": {
                "kind": self.pooling,
                "dropout": self.dropout,
                "hidden_dim": self.hidden_dim,
            },
            "train": {
                "seed": seed,
                "epochs": self.epochs,
                "patience": self.patience,
                "batch_size": self.batch_size,
                "learning_rate": self.learning_rate,
                "weight_decay": self.weight_decay,
            },
        }
        return parse_section(Settings, _plain(tree), type(self).__name__)


def _plain(value: Any) -> Any:
    """The same with Python's own numbers: a search over an array hands in numpy's."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def as_texts(X: Texts) -> list[str]:
    """A list, a one-dimensional array or a single column of strings, as a list of strings."""
    if isinstance(X, str | bytes):
        raise ValueError(f"a list of texts is expected, not the single one {X[:40]!r}; pass [text]")
    if issparse(X):
        raise TypeError("sparse input is not supported: texts come as a list of strings")
    if not isinstance(X, list | tuple):
        array = np.asarray(X, dtype=object)
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        if array.ndim != 1:
            raise ValueError(
                "texts come as a list or a one-dimensional array of strings; this one has the "
                f"shape {array.shape}"
            )
        X = array.tolist()
    texts = list(X)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            missing = isinstance(text, float) and np.isnan(text)
            raise ValueError(
                f"text {i} is {'NaN, a missing one' if missing else repr(text)}; texts are "
                "strings: leave the others out, or put '' in their place"
            )
    if not texts:
        raise ValueError("there are no texts: 0 sample(s); at least one is needed")
    return texts


def _at_least(name: str, value: object, least: int) -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} is {value!r}; it must be a whole number of at least {least}")
