"""The base classes of the scikit-learn estimators: their biLM, their texts and their labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, assert_all_finite, check_consistent_length, check_random_state
from sklearn.utils import column_or_1d as one_dimensional
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from bilm.embedding.embedder import Embedder
from bilm.model.precision import Precision
from bilm.text.tokenizers import (
    NAMES,
    Tokenizer,
    TokenizerSpec,
    load_tokenizer,
    require_tokenizer,
)
from downstream.features.batches import Ids
from downstream.features.loaded_models import digest_at, embedder_at
from downstream.features.texts_to_layers import pooled_layers
from downstream.settings.sections import POOLED_HEADS
from downstream.texts.estimator_inputs import Texts, as_texts, check_at_least, check_one_of

Labels = Sequence[Any] | npt.NDArray[Any]


class ModelEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The base class of all estimators: a model, and how it reads texts."""

    model: Path | str | None
    max_words: int
    tokenizer: str | None
    device: str | None
    precision: Precision

    def _check_reading(self) -> Embedder:
        """Check the parameters that concern reading, and return the model."""
        if not isinstance(self.model, str | Path):
            raise ValueError(
                f"model is {self.model!r}; it must be the path of a model directory, a run, or a "
                "directory with options.json and weights.hdf5"
            )
        check_at_least("max_words", self.max_words, 1)
        embedder = embedder_at(self.model, self.device, self.precision)
        self._tokenizer(embedder)
        return embedder

    def _remember_model(self) -> None:
        """Record at the end of `fit` which model the estimator was fitted with."""
        self.model_digest_ = digest_at(str(self.model))

    def _fitted_model(self) -> Embedder:
        check_is_fitted(self)
        embedder = self._check_reading()
        if digest_at(str(self.model)) != self.model_digest_:
            raise ValueError(
                f"the model at {self.model} is not the one that this {type(self).__name__} was "
                "fitted with; restore that model, or call fit again"
            )
        return embedder

    def _words(self, texts: Sequence[str], embedder: Embedder) -> list[list[str]]:
        """Return the words of each text, without those beyond `max_words`."""
        tokenizer = self._tokenizer(embedder)
        return [tokenizer.tokenize(text)[: self.max_words] for text in texts]

    def _tokenizer(self, embedder: Embedder) -> Tokenizer:
        if self.tokenizer is not None:
            check_one_of("tokenizer", self.tokenizer, NAMES[:2])
            return load_tokenizer(TokenizerSpec.model_validate({"name": self.tokenizer}), Path())
        remedy = f"set tokenizer to one of {', '.join(NAMES[:2])}"
        return require_tokenizer(embedder.pretrained.tokenizer, remedy, str(self.model), ValueError)


class TextEstimator(ModelEstimator):
    """The base class of the estimators of single texts: from texts to pooled layers."""

    pooling: str

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags

    def _check_texts(self, X: Texts, reset: bool) -> list[str]:
        """Return `X` as a list of strings; `reset` is true in `fit`."""
        if reset:
            self.n_features_in_ = 1  # the text
        return as_texts(X)

    def _check_reading(self) -> Embedder:
        check_one_of("pooling", self.pooling, POOLED_HEADS)
        return super()._check_reading()

    def _read(self, texts: list[str], embedder: Embedder) -> npt.NDArray[np.float32]:
        """Return the pooled layers (texts, 2, layers, dim)."""
        return pooled_layers(embedder, self._words(texts, embedder))


class HeadEstimator(ClassifierMixin):  # type: ignore[misc]
    """A mixin of the estimators that train a head: labels, seed and `predict`."""

    random_state: int | np.random.RandomState | None

    def predict_proba(self, X: Any) -> npt.NDArray[np.float32]:
        """Return the probability of each class, in the order of `classes_`."""
        raise NotImplementedError

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the most probable class of each example."""
        probabilities = self.predict_proba(X)
        chosen: npt.NDArray[Any] = self.classes_[probabilities.argmax(axis=1)]
        return chosen

    def _seed(self) -> int:
        """Return the seed of a head; an integer `random_state` is used as it is, like `--seed`."""
        generator = check_random_state(self.random_state)
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(generator.randint(2**31 - 1))

    def _check_labels(self, y: Labels | None, examples: Sequence[Any]) -> Ids:
        """Set `classes_`, and return the labels as indices into it."""
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        labels = one_dimensional(y, warn=True)
        if labels.dtype.kind == "f":
            assert_all_finite(labels)
        check_consistent_length(examples, labels)
        check_classification_targets(labels)
        self.classes_, ids = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has only one class, {self.classes_[0]!r}; at least two are needed")
        return ids.astype(np.int64)
