"""scikit-learn estimators on a frozen biLM: raw texts in, vectors, classes or numbers out.

All work with Pipeline, cross_val_score and GridSearchCV. The model is given by its path and loaded
once per process, so copies are cheap. Nearly all of the cost is the biLM's pass over the texts,
which every `fit` repeats; `python -m downstream.classify` compares many heads after a single pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin, RegressorMixin, TransformerMixin
from sklearn.utils import Tags, check_consistent_length
from sklearn.utils.validation import check_is_fitted

from bilm.model.precision import Precision
from downstream.features.text_estimator import TextEstimator
from downstream.features.texts_to_layers import poolings_of
from downstream.heads.mixes import layer_shares
from downstream.heads.text_targets import Outputs, TargetRecord
from downstream.settings.sections import (
    DEFAULT_EPOCHS,
    DEFAULT_HIDDEN_DIM,
    DEFAULT_LEARNING_RATE,
    DEFAULT_LONG_TEXTS,
    DEFAULT_MAX_WORDS,
    DEFAULT_VALIDATION_SHARE,
    HeadTraining,
    LongTexts,
    regression_mix,
)
from downstream.texts.estimator_inputs import (
    Texts,
    as_indicators,
    as_numbers,
    is_indicator_matrix,
)
from downstream.training.head_estimator import HeadClassifier, Labels
from downstream.training.text_head_estimator import TextHeadEstimator

_DEFAULTS = HeadTraining()


class BiLmVectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, TextEstimator):  # type: ignore[misc]
    """A transformer of raw texts to vectors: a fixed mix of layers, pooled over the words.

    `fit` learns nothing from the texts. The vector of a text without words is zero.

    Args:
        model: the path of a model directory, a run, or a directory of published files.
        mix: "average" of all layers, "top", "layer:K" (0 is the token encoder), "all" (the layers
            concatenated), or one share per layer for a weighted sum.
        pooling: "mean", "max" or "mean_max" (both, concatenated) over the words. As in the heads of
            `downstream.classify`, each layer is pooled first, then mixed.
        max_words: words that the biLM reads at once.
        long_texts: "windows" to read longer texts in several windows, or "cut" to truncate them.
        tokenizer: "whitespace" or "moses", for a model that does not record its tokenizer.
        device: such as "cpu" or "cuda:1"; by default, the GPU if there is one, else the CPU.
        precision: "float32", "tf32" or "bfloat16" for the matrix products of the biLM.
    """

    def __init__(
        self,
        model: Path | str | None = None,
        *,
        mix: str | Sequence[float] = "average",
        pooling: str = "mean",
        max_words: int = DEFAULT_MAX_WORDS,
        long_texts: LongTexts = DEFAULT_LONG_TEXTS,
        tokenizer: str | None = None,
        device: str | None = None,
        precision: Precision = "float32",
    ) -> None:
        self.model = model
        self.mix = mix
        self.pooling = pooling
        self.max_words = max_words
        self.long_texts = long_texts
        self.tokenizer = tokenizer
        self.device = device
        self.precision = precision

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # texts in, float32 out
        return tags

    def fit(self, X: Texts, y: Any = None) -> Self:
        """Check the parameters and the texts; nothing is learned."""
        self._check_texts(X, reset=True)
        embedder = self._check_reading()
        shares = layer_shares(self.mix, embedder.num_layers)
        self._n_features_out = len(shares) * embedder.dim * len(poolings_of(self.pooling))
        self._remember_model()
        return self

    def transform(self, X: Texts) -> npt.NDArray[np.float32]:
        """Return the vectors of the texts (texts, features)."""
        embedder = self._fitted_model()
        texts = self._check_texts(X, reset=False)
        shares = layer_shares(self.mix, embedder.num_layers)
        pooled = self._read(texts, embedder)[:, poolings_of(self.pooling)]
        mixed: npt.NDArray[np.float32] = np.einsum("ol,tpld->tpod", shares, pooled)
        return mixed.reshape(len(texts), -1)  # (texts, poolings * outputs * dim)


class _BiLmHead(TextHeadEstimator):
    """The parameters of the estimators of single texts with a head."""

    def __init__(
        self,
        model: Path | str | None = None,
        *,
        mix: str = _DEFAULTS.mix.kinds[0],
        pooling: str = _DEFAULTS.head.kind,
        penalty: float = _DEFAULTS.mix.penalty,
        epochs: int = DEFAULT_EPOCHS["pooled"],
        learning_rate: float = DEFAULT_LEARNING_RATE["pooled"],
        batch_size: int | None = _DEFAULTS.train.batch_size,
        dropout: float = _DEFAULTS.head.dropout,
        weight_decay: float = _DEFAULTS.train.weight_decay,
        hidden_dim: int = DEFAULT_HIDDEN_DIM["pooled"],
        validation_share: float | None = DEFAULT_VALIDATION_SHARE,
        patience: int = _DEFAULTS.train.patience,
        max_words: int = DEFAULT_MAX_WORDS,
        long_texts: LongTexts = DEFAULT_LONG_TEXTS,
        tokenizer: str | None = None,
        device: str | None = None,
        precision: Precision = "float32",
        random_state: int | np.random.RandomState | None = _DEFAULTS.train.seed,
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
        self.long_texts = long_texts
        self.tokenizer = tokenizer
        self.device = device
        self.precision = precision
        self.random_state = random_state


class BiLmClassifier(HeadClassifier, _BiLmHead):
    """A classifier of raw texts: a frozen biLM, a mix of its pooled layers, and a head.

    The head is that of `downstream.classify`, with the same defaults, and is trained in the same
    way: with AdamW, keeping the weights of the epoch with the best validation accuracy. The same
    `random_state` gives the same result; an integer is the `--seed` of `downstream.classify`.

    `y` has one class per text, or any number of labels: an indicator matrix (texts, labels) of 0
    and 1. Labels have a sigmoid each and are predicted from a probability of 0.5 on; the epoch is
    chosen by micro F1.

    Args:
        model: the path of a model directory, a run, or a directory of published files.
        mix: "trainable", "frozen", "learned", "average", "top" or "layer:K".
        pooling: "mean", "max" or "mean_max" (both, concatenated) over the words.
        penalty: lambda in `lambda * ||w||^2`, on the weights of a trainable mix.
        epochs: the maximum number of epochs.
        learning_rate: the peak; it decays to 0 in the last epoch.
        batch_size: texts per step; by default 512, or less for small data sets.
        dropout: dropout rate of the text's vector.
        weight_decay: weight decay of the head.
        hidden_dim: width of the hidden layer before the output; 0 for none.
        validation_share: share of each class that is used to choose the epoch and not for training;
            equal texts stay together. With None, or if no class has two texts, all texts are used
            for both.
        patience: stop after this many epochs without improvement.
        max_words: words that the biLM reads at once.
        long_texts: "windows" to read longer texts in several windows, or "cut" to truncate them.
        tokenizer: "whitespace" or "moses", for a model that does not record its tokenizer.
        device: such as "cpu" or "cuda:1"; by default, the GPU if there is one, else the CPU.
        precision: "float32", "tf32" or "bfloat16" for the matrix products of the biLM.
        random_state: determines initial weights, batch order, dropout and the validation texts.

    Attributes after `fit`: `classes_` (for labels, their numbers from 0), `head_`, `history_` (per
    epoch), `mix_shares_` (of each layer), `multilabel_`, `n_iter_` (epochs).
    """

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def fit(self, X: Texts, y: Labels) -> Self:
        """Read the texts once, and train the mix and the head."""
        texts = self._check_texts(X, reset=True)
        self._require_targets(y)
        if is_indicator_matrix(y):
            labels = as_indicators(y)
            check_consistent_length(texts, labels)
            self.classes_ = np.arange(labels.shape[1])
            self.multilabel_ = True
            target = TargetRecord(kind="multilabel")
            strata = np.zeros(len(texts), dtype=np.int64)
            return self._fit_targets(texts, labels, strata, Outputs(labels.shape[1], target))
        self.multilabel_ = False
        ids = self._check_labels(y, texts)
        return self._fit_targets(texts, ids, ids, Outputs(len(self.classes_), TargetRecord()))

    def predict_proba(self, X: Texts) -> npt.NDArray[np.float32]:
        """Return the probability of each class or label, in the order of `classes_`."""
        if not self._is_multilabel():
            return super().predict_proba(X)
        probabilities: npt.NDArray[np.float32] = self._predictions(X)["probability"]
        return probabilities

    def predict(self, X: Texts) -> npt.NDArray[Any]:
        """Return the most probable class of each text, or the indicator matrix of its labels."""
        if not self._is_multilabel():
            return super().predict(X)
        indicators: npt.NDArray[np.int64] = self._predictions(X)["chosen"].astype(np.int64)
        return indicators

    def _is_multilabel(self) -> bool:
        check_is_fitted(self)
        return self.multilabel_


class BiLmRegressor(RegressorMixin, _BiLmHead):  # type: ignore[misc]
    """A regressor of raw texts: a frozen biLM, a mix of its pooled layers, and a head.

    The head is that of `downstream.classify --target regression`. `y` has one number per text. The
    parameters and attributes are those of `BiLmClassifier`, without `classes_`; the epoch is chosen
    by the error on a share of all texts, and `score` returns R^2, as for other regressors.
    """

    def fit(self, X: Texts, y: Labels) -> Self:
        """Read the texts once, and train the mix and the head."""
        texts = self._check_texts(X, reset=True)
        self._require_targets(y)
        numbers = as_numbers(y)
        check_consistent_length(texts, numbers)
        strata = np.zeros(len(texts), dtype=np.int64)
        outputs = Outputs(1, TargetRecord(kind="regression"))
        return self._fit_targets(texts, numbers, strata, outputs)

    def _settings(self, seed: int) -> HeadTraining:
        settings = super()._settings(seed)
        return settings.model_copy(update={"mix": regression_mix(settings.mix)})

    def predict(self, X: Texts) -> npt.NDArray[np.float32]:
        """Return the predicted number of each text."""
        numbers: npt.NDArray[np.float32] = self._predictions(X)
        return numbers
