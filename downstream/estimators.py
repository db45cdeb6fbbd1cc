"""scikit-learn estimators on a frozen biLM: raw texts in, vectors or classes out.

Both work with Pipeline, cross_val_score and GridSearchCV. The model is given by its path and loaded
once per process, so copies are cheap. Nearly all of the cost is the biLM's pass over the texts,
which every `fit` repeats; `python -m downstream.classify` compares many heads after a single pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags

from bilm.errors import CorpusError
from bilm.files.sections import parse_section
from bilm.model.devices import copy_module_to
from bilm.model.precision import Precision
from downstream.features.batches import Examples, FeatureShape, Ids, PooledSource, Subset
from downstream.features.text_estimator import HeadEstimator, Labels, TextEstimator
from downstream.features.texts_to_layers import poolings_of
from downstream.heads.mixes import layer_shares
from downstream.heads.text_model import TextModel
from downstream.settings.mix_kinds import MixKind
from downstream.settings.sections import (
    DEFAULT_EPOCHS,
    DEFAULT_HIDDEN_DIM,
    DEFAULT_LEARNING_RATE,
    DEFAULT_MAX_WORDS,
    DEFAULT_VALIDATION_SHARE,
    HeadTraining,
)
from downstream.tasks.classification import split_validation
from downstream.texts.estimator_inputs import Texts, with_python_numbers
from downstream.training.fit import fit_new, predict_probabilities

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
        max_words: longer texts are truncated.
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
        tokenizer: str | None = None,
        device: str | None = None,
        precision: Precision = "float32",
    ) -> None:
        self.model = model
        self.mix = mix
        self.pooling = pooling
        self.max_words = max_words
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


class BiLmClassifier(HeadEstimator, TextEstimator):
    """A classifier of raw texts: a frozen biLM, a mix of its pooled layers, and a head.

    The head is that of `downstream.classify`, with the same defaults, and is trained in the same
    way: with AdamW, keeping the weights of the epoch with the best validation accuracy. The same
    `random_state` gives the same result; an integer is the `--seed` of `downstream.classify`.

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
        validation_share: share of each class that is used to choose the epoch and not for training.
            With None, or if no class has two texts, all texts are used for both.
        patience: stop after this many epochs without improvement.
        max_words: longer texts are truncated.
        tokenizer: "whitespace" or "moses", for a model that does not record its tokenizer.
        device: such as "cpu" or "cuda:1"; by default, the GPU if there is one, else the CPU.
        precision: "float32", "tf32" or "bfloat16" for the matrix products of the biLM.
        random_state: determines initial weights, batch order, dropout and the validation texts.

    Attributes after `fit`: `classes_`, `head_`, `history_` (per epoch), `mix_shares_` (of each
    layer), `n_iter_` (epochs).
    """

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
        self.tokenizer = tokenizer
        self.device = device
        self.precision = precision
        self.random_state = random_state

    def fit(self, X: Texts, y: Labels) -> Self:
        """Read the texts once, and train the mix and the head."""
        texts = self._check_texts(X, reset=True)
        labels = self._check_labels(y, texts)
        embedder = self._check_reading()
        seed = self._seed()
        train, validation = self._split(labels, seed)
        settings = self._settings(seed)
        source = PooledSource(self._read(texts, embedder), self.pooling)
        shape = FeatureShape(
            embedder.num_layers, embedder.dim, num_poolings=len(poolings_of(self.pooling))
        )

        def build() -> TextModel:
            kind, num_classes = MixKind.parse(self.mix), len(self.classes_)
            return TextModel(kind, settings.mix, settings.head, shape, num_classes, seed)

        self.head_, self.history_ = fit_new(
            build,
            Examples(Subset(source, train), labels[train]),
            Examples(Subset(source, validation), labels[validation]),
            settings,
            seed,
            embedder.device,
        )
        self.n_iter_ = len(self.history_.train_loss)
        self.mix_shares_ = self.head_.shares().get("input")
        self._remember_model()
        return self

    def predict_proba(self, X: Texts) -> npt.NDArray[np.float32]:
        """Return the probability of each class (texts, classes), in the order of `classes_`."""
        embedder = self._fitted_model()
        texts = self._check_texts(X, reset=False)
        source = PooledSource(self._read(texts, embedder), self.pooling)
        return predict_probabilities(copy_module_to(self.head_, embedder.device), source)

    def _split(self, labels: Ids, seed: int) -> tuple[Ids, Ids]:
        everything = np.arange(len(labels))
        if self.validation_share is None:
            return everything, everything
        try:
            return split_validation(labels, self.validation_share, seed)
        except CorpusError:  # no class has two texts
            return everything, everything

    def _settings(self, seed: int) -> HeadTraining:
        """Return the parameters as validated training settings."""
        tree = {
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
        return parse_section(HeadTraining, with_python_numbers(tree), type(self).__name__)
