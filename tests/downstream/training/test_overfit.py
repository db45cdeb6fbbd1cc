"""Every head overfits 20 texts with random classes, labels and numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from downstream.features.batches import (
    Examples,
    FeatureShape,
    PooledSource,
    Source,
    WordTexts,
)
from downstream.features.texts_to_layers import pool_words, poolings_of
from downstream.heads.saved_head import make_text_model
from downstream.heads.text_targets import Outputs, TargetRecord
from downstream.settings.mix_kinds import MixKind
from downstream.settings.sections import HeadTraining, TargetKind
from downstream.training.fit import History, fit

every_head = pytest.mark.parametrize(
    "head", ["mean", "max", "mean_max", "attention", "bilstm", "gru"]
)


def overfit(head: str, kind: TargetKind) -> History:
    rng = np.random.default_rng(0)
    layers = [rng.standard_normal((n, 3, 8)).astype(np.float32) for n in rng.integers(2, 6, 20)]
    source: Source = WordTexts(layers, None)
    if poolings_of(head):
        source = PooledSource(np.stack([pool_words(array) for array in layers]), head)
    tree = {
        "head": {"kind": head, "encoder_dim": 16, "hidden_dim": 64, "dropout": 0.0},
        "mix": {"dropout": 0.0},
        "train": {"epochs": 100, "patience": 100, "batch_size": 10, "learning_rate": 0.02},
    }
    settings = HeadTraining.model_validate(tree)
    targets = random_targets(kind, rng)
    num_outputs = {"class": 2, "multilabel": 4, "regression": 1}[kind]
    torch.manual_seed(0)
    shape = FeatureShape(3, 8, num_poolings=len(poolings_of(head)))
    outputs = Outputs(num_outputs, TargetRecord(kind=kind))
    model = make_text_model(
        outputs, MixKind("trainable"), settings.mix, settings.head, shape, seed=0
    )
    examples = Examples(source, targets)
    return fit(model, examples, examples, settings, seed=0)


def random_targets(kind: TargetKind, rng: np.random.Generator) -> npt.NDArray[Any]:
    if kind == "class":
        return rng.integers(0, 2, 20)
    if kind == "multilabel":
        return (rng.random((20, 4)) < 0.4).astype(np.float32)
    return rng.standard_normal(20).astype(np.float32)


@every_head
def test_overfits_20_examples(head: str) -> None:
    assert max(overfit(head, "class").validation_accuracy) == 1.0


@every_head
def test_overfits_labels(head: str) -> None:
    assert max(overfit(head, "multilabel").validation_accuracy) == 1.0


@every_head
def test_overfits_numbers(head: str) -> None:
    history = overfit(head, "regression")
    assert min(history.validation_loss) < 0.05  # the variance of the numbers is about 1
