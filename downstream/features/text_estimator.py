"""The base classes of the scikit-learn estimators: their biLM and their texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
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
from downstream.features.loaded_models import digest_at, embedder_at
from downstream.features.texts_to_layers import TextReading, pooled_layers
from downstream.settings.sections import POOLED_HEADS, LongTexts
from downstream.texts.estimator_inputs import Texts, as_texts, check_at_least, check_one_of


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
        """Return the words of each text, truncated if `_reading` states it."""
        tokenizer, max_words = self._tokenizer(embedder), self._reading().max_text_words
        return [tokenizer.tokenize(text)[:max_words] for text in texts]

    def _reading(self) -> TextReading:
        """Return how texts are read; long ones are truncated."""
        return TextReading(max_words=self.max_words)

    def _tokenizer(self, embedder: Embedder) -> Tokenizer:
        if self.tokenizer is not None:
            check_one_of("tokenizer", self.tokenizer, NAMES[:2])
            return load_tokenizer(TokenizerSpec.model_validate({"name": self.tokenizer}), Path())
        remedy = f"set tokenizer to one of {', '.join(NAMES[:2])}"
        return require_tokenizer(embedder.pretrained.tokenizer, remedy, str(self.model), ValueError)


class TextEstimator(ModelEstimator):
    """The base class of the estimators of single texts: from texts to pooled layers."""

    pooling: str
    long_texts: LongTexts

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
        check_one_of("long_texts", self.long_texts, get_args(LongTexts))
        return super()._check_reading()

    def _read(self, texts: list[str], embedder: Embedder) -> npt.NDArray[np.float32]:
        """Return the pooled layers (texts, 2, layers, dim)."""
        return pooled_layers(embedder, self._words(texts, embedder), self.max_words)

    def _reading(self) -> TextReading:
        return TextReading(max_words=self.max_words, long_texts=self.long_texts)
