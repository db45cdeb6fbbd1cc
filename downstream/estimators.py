"""scikit-learn estimators over a frozen biLM: raw texts in, vectors or classes out.

Both go into a Pipeline, cross_val_score and GridSearchCV. The model is named by its path and loaded
once a process, so copies are cheap. Reading the texts is nearly all of the cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse  # type: ignore[import-untyped]
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bilm.embedder import Embedder, StateMode, Vectors
from bilm.tokenizers import NAMES, Tokenizer, load_tokenizer
from downstream.loaded_models import embedder_at
from downstream.pooling import POOLINGS, pooled_texts

Texts = Sequence[str] | npt.NDArray[Any]
Layers = str | int | Sequence[float]


class _ReadsTexts(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """What both estimators share: the model, and texts to words."""

    model: Path | str | None
    tokenizer: str | None
    max_words: int | None

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

    def _embedder(self) -> Embedder:
        if not isinstance(self.model, str | Path):
            raise ValueError(
                f"model is {self.model!r}; it must be the path of a model directory, of a run, or "
                "of a directory with options.json and weights.hdf5"
            )
        return embedder_at(self.model)

    def _words(self, texts: list[str], embedder: Embedder) -> list[list[str]]:
        tokenizer = self._tokenizer(embedder)
        return [tokenizer.tokenize(text)[: self.max_words] for text in texts]

    def _tokenizer(self, embedder: Embedder) -> Tokenizer:
        if self.tokenizer is not None:
            _one_of("tokenizer", self.tokenizer, NAMES[:2])
            return load_tokenizer({"name": self.tokenizer}, Path())
        if embedder.pretrained.tokenizer is None:
            raise ValueError(
                f"the model {self.model} does not know how its text was tokenised; set tokenizer "
                f"to one of {', '.join(NAMES[:2])}"
            )
        return embedder.pretrained.tokenizer


class BiLmVectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _ReadsTexts):  # type: ignore[misc]
    """Raw texts to one vector each: a fixed mix of the biLM's layers, pooled over the words.

    `fit` learns nothing from the texts. A text without words becomes zeros.

    Args:
        model: path of a model directory, a run, or a directory of published files.
        layers: "average" of all layers, the "top" one, "all" side by side, the number of one
            layer (0 is the token encoder), or one share per layer for a fixed weighted sum.
        pooling: "mean" or "max" over the words, or both side by side: "mean_max".
        state: what the LSTMs remember when a text begins, "reset" or "warm" (see `Embedder`).
        max_words: read no more than these many words of a text.
        tokenizer: "whitespace" or "moses", for a model that does not know its own.
        batch_size: texts computed together.
    """

    def __init__(
        self,
        model: Path | str | None = None,
        *,
        layers: Layers = "average",
        pooling: str = "mean",
        state: StateMode = "reset",
        max_words: int | None = None,
        tokenizer: str | None = None,
        batch_size: int = 32,
    ) -> None:
        self.model = model
        self.layers = layers
        self.pooling = pooling
        self.state = state
        self.max_words = max_words
        self.tokenizer = tokenizer
        self.batch_size = batch_size

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # texts in, float32 out
        return tags

    def fit(self, X: Texts, y: Any = None) -> Self:
        """Check the parameters against the model; the texts are only looked at."""
        self._check_texts(X, reset=True)
        _one_of("pooling", self.pooling, POOLINGS)
        _one_of("state", self.state, [mode for mode in get_args(StateMode) if mode != "carry"])
        _at_least("batch_size", self.batch_size, 1)
        if self.max_words is not None:
            _at_least("max_words", self.max_words, 1)
        embedder = self._embedder()
        self._tokenizer(embedder)
        shares = layer_shares(self.layers, embedder.num_layers)
        width = embedder.dim * len(shares)
        self._n_features_out = width * len(POOLINGS[self.pooling])
        return self

    def transform(self, X: Texts) -> npt.NDArray[np.float32]:
        """The vectors of the texts: (texts, features)."""
        check_is_fitted(self)
        texts = self._check_texts(X, reset=False)
        embedder = self._embedder()
        shares = layer_shares(self.layers, embedder.num_layers)

        def mix(layers: Vectors) -> npt.NDArray[np.float32]:
            return np.concatenate([np.tensordot(row, layers, axes=1) for row in shares], axis=-1)

        rows = pooled_texts(
            embedder,
            self._words(texts, embedder),
            mix,
            self.pooling,
            state=self.state,
            batch_size=self.batch_size,
        )
        result = np.empty((len(texts), self._n_features_out), dtype=np.float32)
        for i, row in enumerate(rows):
            result[i] = row
        return result


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


def layer_shares(layers: Layers, num_layers: int) -> npt.NDArray[np.float32]:
    """What each output takes of each layer: (outputs, layers)."""
    every: npt.NDArray[np.float32] = np.eye(num_layers, dtype=np.float32)
    if isinstance(layers, str):
        _one_of("layers", layers, ("average", "top", "all"))
        if layers == "average":
            return np.full((1, num_layers), 1 / num_layers, dtype=np.float32)
        return every[-1:] if layers == "top" else every
    if isinstance(layers, int | np.integer):
        if not 0 <= layers < num_layers:
            raise ValueError(f"layers is {layers}; the model's layers are 0 to {num_layers - 1}")
        return every[[int(layers)]]
    shares = np.asarray(layers, dtype=np.float32)
    if shares.shape != (num_layers,) or not np.isfinite(shares).all():
        raise ValueError(
            f"layers is {layers!r}; one finite share for each of the {num_layers} layers is needed"
        )
    return shares[None]


def _one_of(name: str, value: object, allowed: Any) -> None:
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(allowed)}")


def _at_least(name: str, value: object, least: float) -> None:
    numbers = (int, float, np.integer, np.floating)
    if not isinstance(value, numbers) or isinstance(value, bool) or not value >= least:
        raise ValueError(f"{name} is {value!r}; it must be at least {least}")
