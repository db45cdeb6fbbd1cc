"""The base classes of the scikit-learn estimators that train a head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin
from sklearn.utils import assert_all_finite, check_consistent_length, check_random_state
from sklearn.utils import column_or_1d as one_dimensional
from sklearn.utils.multiclass import check_classification_targets

from bilm.embedding.embedder import Embedder
from bilm.errors import CorpusError
from bilm.model.devices import copy_module_to
from downstream.features.batches import Examples, Ids, Source, Subset
from downstream.features.text_estimator import ModelEstimator
from downstream.heads.head import MixedModel, Predictions
from downstream.settings.common import TrainingPlan
from downstream.training.fit import History, fit_new, predict

Labels = Sequence[Any] | npt.NDArray[Any]


class TargetParts(NamedTuple):
    """The targets of all examples, and the indices of the parts for training and validation."""

    values: npt.NDArray[Any]
    train: Ids
    validation: Ids

    def examples(self, source: Source, part: Ids) -> Examples:
        """Return the examples of a part."""
        return Examples(Subset(source, part), self.values[part])


class HeadEstimator(ModelEstimator):
    """The base class of the estimators with a head: its training, its seed and its predictions."""

    epochs: int
    learning_rate: float
    batch_size: int | None
    weight_decay: float
    validation_share: float | None
    patience: int
    random_state: int | np.random.RandomState | None

    head_: MixedModel
    history_: History

    def _check_texts(self, X: Any, reset: bool) -> list[Any]:
        """Return the texts or the pairs of texts as a list; `reset` is true in `fit`."""
        raise NotImplementedError

    def _source(self, texts: list[Any], embedder: Embedder) -> Source:
        """Return the features of texts or of pairs of texts."""
        raise NotImplementedError

    def _train_head(
        self,
        build: Callable[[], MixedModel],
        source: Source,
        targets: TargetParts,
        settings: TrainingPlan,
        embedder: Embedder,
    ) -> None:
        """Build a head and train it, with the seed of the settings."""
        self.head_, self.history_ = fit_new(
            build,
            targets.examples(source, targets.train),
            targets.examples(source, targets.validation),
            settings,
            settings.train.seed,
            embedder.device,
        )
        self.n_iter_ = len(self.history_.train_loss)
        self._remember_model()

    def _predictions(self, X: Any) -> Predictions:
        """Return the predictions of the head."""
        embedder = self._fitted_model()
        source = self._source(self._check_texts(X, reset=False), embedder)
        return predict(copy_module_to(self.head_, embedder.device), source)

    def _seed(self) -> int:
        """Return the seed of a head; an integer `random_state` is used as it is, like `--seed`."""
        generator = check_random_state(self.random_state)
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(generator.randint(2**31 - 1))

    def _require_targets(self, y: Any) -> None:
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )

    def _split(
        self, num_examples: int, split: Callable[[float], tuple[Ids, Ids]]
    ) -> tuple[Ids, Ids]:
        """Return the parts for training and validation, given a function of the share.

        Both parts contain all examples without a share, if the examples cannot be divided, or
        if only one would be left for training.
        """
        everything = np.arange(num_examples)
        if self.validation_share is None:
            return everything, everything
        try:
            train, validation = split(self.validation_share)
        except CorpusError:
            return everything, everything
        return (train, validation) if len(train) > 1 else (everything, everything)

    def _training(self, seed: int) -> dict[str, Any]:
        """Return the parameters of the section `train` of the settings."""
        return {
            "seed": seed,
            "epochs": self.epochs,
            "patience": self.patience,
            "batch_size": self.batch_size,
            "learning_rate": self.learning_rate,
            "weight_decay": self.weight_decay,
        }


class HeadClassifier(ClassifierMixin, HeadEstimator):  # type: ignore[misc]
    """The base class of the estimators with a head that classifies."""

    classes_: npt.NDArray[Any]

    def predict_proba(self, X: Any) -> npt.NDArray[np.float32]:
        """Return the probability of each class, in the order of `classes_`."""
        probabilities: npt.NDArray[np.float32] = self._predictions(X)
        return probabilities

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the most probable class of each example."""
        chosen: npt.NDArray[Any] = self.classes_[self._predictions(X).argmax(axis=1)]
        return chosen

    def _check_labels(self, y: Labels, examples: Sequence[Any]) -> Ids:
        """Set `classes_`, and return the labels as indices into it."""
        self._require_targets(y)
        labels = one_dimensional(y, warn=True)
        if labels.dtype.kind == "f":
            assert_all_finite(labels)
        check_consistent_length(examples, labels)
        check_classification_targets(labels)
        self.classes_, ids = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            (only,) = self.classes_.tolist()
            raise ValueError(f"y has only one class, {only!r}; at least two are needed")
        return ids.astype(np.int64)
