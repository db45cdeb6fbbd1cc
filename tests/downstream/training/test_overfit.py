"""Every classification head overfits 20 texts with random labels."""

from __future__ import annotations

import numpy as np
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
from downstream.heads.text_model import TextModel
from downstream.settings.mix_kinds import MixKind
from downstream.settings.sections import HeadTraining
from downstream.training.fit import fit


@pytest.mark.parametrize("head", ["mean", "max", "mean_max", "attention", "bilstm", "gru"])
def test_overfits_20_examples(head: str) -> None:
    rng = np.random.default_rng(0)
    layers = [rng.standard_normal((n, 3, 8)).astype(np.float32) for n in rng.integers(2, 6, 20)]
    labels = rng.integers(0, 2, 20)
    source: Source = WordTexts(layers, None)
    if poolings_of(head):
        source = PooledSource(np.stack([pool_words(array) for array in layers]), head)
    tree = {
        "head": {"kind": head, "encoder_dim": 16, "hidden_dim": 64, "dropout": 0.0},
        "mix": {"dropout": 0.0},
        "train": {"epochs": 100, "patience": 100, "batch_size": 10, "learning_rate": 0.02},
    }
    settings = HeadTraining.model_validate(tree)
    torch.manual_seed(0)
    shape = FeatureShape(3, 8, num_poolings=len(poolings_of(head)))
    model = TextModel(MixKind("trainable"), settings.mix, settings.head, shape, num_classes=2)
    examples = Examples(source, labels)
    history = fit(model, examples, examples, settings, seed=0)
    assert max(history.validation_accuracy) == 1.0
