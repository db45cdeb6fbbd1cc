"""The base class of the scikit-learn estimators that train a head on pooled layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils import check_random_state

from bilm.errors import CorpusError
from bilm.files.sections import parse_section
from bilm.model.devices import copy_module_to
from downstream.features.batches import Examples, FeatureShape, Ids, PooledSource, Subset
from downstream.features.text_estimator import TextEstimator
from downstream.features.texts_to_layers import poolings_of
from downstream.heads.head import Predictions
from downstream.heads.saved_head import make_text_model
from downstream.heads.text_model import TextModel
from downstream.heads.text_targets import Outputs, number_target
from downstream.settings.mix_kinds import MixKind
from downstream.settings.sections import HeadTraining
from downstream.tasks.text_task import split_validation
from downstream.texts.estimator_inputs import Texts, with_python_numbers
from downstream.training.fit import History, fit, predict


class HeadEstimator(TextEstimator):
    """From texts and targets to a trained head; the parameters are those of `BiLmClassifier`."""

    mix: str
    penalty: float
    epochs: int
    learning_rate: float
    batch_size: int | None
    dropout: float
    weight_decay: float
    hidden_dim: int
    validation_share: float | None
    patience: int
    random_state: int | np.random.RandomState | None

    head_: TextModel
    history_: History

    def _fit_head(
        self, texts: list[str], targets: npt.NDArray[Any], strata: Ids, outputs: Outputs
    ) -> Self:
        """Read the texts once, and train the mix and the head; a share of `strata` is held out."""
        if len(texts) < 2:
            raise ValueError("there is only 1 sample; at least two texts are required")
        embedder = self._check_reading()
        seed = self._seed()
        train, validation = self._split(strata, seed)
        if outputs.target.kind == "regression":
            outputs = replace(outputs, target=number_target(targets[train]))
        settings = self._settings(seed)
        source = PooledSource(self._read(texts, embedder), self.pooling)
        num_poolings = len(poolings_of(self.pooling))
        device = embedder.device
        devices = [] if device.type == "cpu" else [torch.empty(0, device=device).get_device()]
        with torch.random.fork_rng(devices, device_type=device.type):
            torch.manual_seed(seed)
            self.head_ = make_text_model(
                outputs,
                MixKind.parse(self.mix),
                settings.mix,
                settings.head,
                FeatureShape(embedder.num_layers, embedder.dim, num_poolings=num_poolings),
                seed,
            ).to(device)
            self.history_ = fit(
                self.head_,
                Examples(Subset(source, train), targets[train]),
                Examples(Subset(source, validation), targets[validation]),
                settings,
                seed,
            )
        self.head_.cpu().eval()  # a fitted estimator can be pickled and used on any machine
        self.n_iter_ = len(self.history_.train_loss)
        self.mix_shares_ = self.head_.shares().get("input")
        self._remember_model()
        return self

    def _predictions(self, X: Texts) -> Predictions:
        """Return the predictions of the head."""
        embedder = self._fitted_model()
        texts = self._check_texts(X, reset=False)
        source = PooledSource(self._read(texts, embedder), self.pooling)
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

    def _split(self, strata: Ids, seed: int) -> tuple[Ids, Ids]:
        everything = np.arange(len(strata))
        if self.validation_share is None:
            return everything, everything
        try:
            train, validation = split_validation(strata, self.validation_share, seed)
        except CorpusError:  # no class has two texts
            return everything, everything
        return (train, validation) if len(train) > 1 else (everything, everything)

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
