"""The base class of the scikit-learn estimators that train a head on pooled layers of texts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy.typing as npt

from bilm.embedding.embedder import Embedder
from bilm.files.sections import parse_section
from downstream.features.batches import FeatureShape, Ids, PooledSource
from downstream.features.text_estimator import TextEstimator
from downstream.features.texts_to_layers import poolings_of
from downstream.heads.saved_head import make_text_model
from downstream.heads.text_model import TextNetwork
from downstream.heads.text_targets import Outputs, number_target
from downstream.settings.mix_kinds import MixKind
from downstream.settings.sections import HeadTraining
from downstream.tasks.text_task import split_validation
from downstream.texts.estimator_inputs import check_mix, parameters_of, with_python_numbers
from downstream.training.head_estimator import HeadEstimator, TargetParts


class TextHeadEstimator(TextEstimator, HeadEstimator):
    """From texts and targets to a trained head; the parameters are those of `BiLmClassifier`."""

    mix: str
    penalty: float
    dropout: float
    hidden_dim: int

    def _fit_targets(
        self, texts: list[str], values: npt.NDArray[Any], strata: Ids, outputs: Outputs
    ) -> Self:
        """Read the texts once, and train the mix and the head; a share of `strata` is held out."""
        if len(texts) < 2:
            raise ValueError("there is only 1 sample; at least two texts are required")
        embedder = self._check_reading()
        settings = self._settings(self._seed())
        seed = settings.train.seed
        parts = self._split(len(texts), lambda share: split_validation(texts, strata, share, seed))
        targets = TargetParts(values, *parts)
        if outputs.target.kind == "regression":
            outputs = replace(outputs, target=number_target(values[targets.train]))
        shape = FeatureShape(
            embedder.num_layers, embedder.dim, num_poolings=len(poolings_of(self.pooling))
        )

        def build() -> TextNetwork:
            kind = MixKind.parse(self.mix)
            return make_text_model(outputs, kind, settings.mix, settings.head, shape, seed)

        self._train_head(build, self._source(texts, embedder), targets, settings, embedder)
        self.mix_shares_ = self.head_.shares().get("input")
        return self

    def _source(self, texts: list[str], embedder: Embedder) -> PooledSource:
        return PooledSource(self._read(texts, embedder), self.pooling)

    def _settings(self, seed: int) -> HeadTraining:
        """Return the parameters as validated training settings."""
        tree = {
            "mix": {"kinds": [self.mix], "penalty": self.penalty},
            "head": {
                "kind": self.pooling,
                "dropout": self.dropout,
                "hidden_dim": self.hidden_dim,
            },
            "train": self._training(seed),
        }
        check_mix(self.mix)
        names = parameters_of(tree, {"head.kind": "pooling", "train.seed": "random_state"})
        owner = type(self).__name__
        return parse_section(HeadTraining, with_python_numbers(tree), owner, names=names)
