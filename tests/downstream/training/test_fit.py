from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from bilm.errors import DivergedError
from downstream.features.batches import Batch, Ids, word_batch
from downstream.heads.text_model import TextModel
from downstream.settings.sections import Settings
from downstream.training.fit import History, _batches, fit, predict_probabilities


class Texts:
    """Random texts; class 1 has a larger first number in layer 1, and nothing else to tell it."""

    def __init__(self, count: int, seed: int, shift: float = 1.5) -> None:
        rng = np.random.default_rng(seed)
        self.labels = np.arange(count) % 2
        self.lengths: Ids = rng.integers(1, 6, size=count)
        self.arrays = [rng.standard_normal((n, 3, 4)).astype(np.float32) for n in self.lengths]
        for array, label in zip(self.arrays, self.labels, strict=True):
            array[:, 1, 0] += shift * (2 * label - 1)

    def __len__(self) -> int:
        return len(self.arrays)

    def batch(self, indices: Ids) -> Batch:
        return word_batch([self.arrays[i] for i in indices], None)


def settings(**train: Any) -> Settings:
    return Settings.model_validate(
        {
            "model": "m",
            "output": "o",
            "data": {"train": "a", "test": "b"},
            "head": {"kind": "attention", "encoder_dim": 8},
            "train": {"learning_rate": 0.02, "batch_size": 16, "epochs": 12, **train},
            "mix": {"learning_rate": 0.05},
        }
    )


def train(chosen: Settings, seed: int = 0, shift: float = 1.5) -> tuple[TextModel, History]:
    torch.manual_seed(seed)
    model = TextModel(
        "trainable", chosen.mix, chosen.head, num_layers=3, dim=4, vector_dim=0, num_classes=2
    )
    texts, held = Texts(200, 1, shift), Texts(60, 2, shift)
    return model, fit(model, texts, texts.labels, held, held.labels, chosen, seed)


def test_it_learns_and_finds_the_layer_that_tells() -> None:
    model, history = train(settings())
    assert max(history.validation_accuracy) > 0.85
    shares = model.shares()["input"]
    assert shares[1] == max(shares) > 0.4
    assert model.scales()["input"] != 1.0
    assert history.shares[history.best_epoch - 1] == {"input": pytest.approx(shares)}


def test_the_weights_of_the_best_epoch_are_kept() -> None:
    model, history = train(settings(patience=3, epochs=30))
    held = Texts(60, 2)
    accuracy = (predict_probabilities(model, held).argmax(axis=1) == held.labels).mean()
    assert accuracy == pytest.approx(max(history.validation_accuracy))
    assert len(history.validation_accuracy) in (30, history.best_epoch + 3)


def test_same_seed_same_result_and_another_seed_another() -> None:
    (one, first), (two, second), (other, _) = (
        train(settings()),
        train(settings()),
        train(settings(), 1),
    )
    assert first == second
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=0, rtol=0)
    assert any(
        not torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True)
    )


def test_a_loss_that_is_no_number_ends_it() -> None:
    with pytest.raises(DivergedError, match="lower --learning-rate"):
        train(settings(), shift=math.inf)
    with pytest.raises(DivergedError, match="lower --learning-rate"):  # only seen after the step
        train(settings(epochs=1, batch_size=200, learning_rate=1e30))


def test_batches_hold_every_text_once_with_like_lengths() -> None:
    lengths = np.random.default_rng(0).integers(1, 100, size=1001)
    batches = list(_batches(lengths, 10, (0, 1)))
    assert sorted(np.concatenate(batches)) == list(range(1001))
    assert min(map(len, batches)) > 1  # the last one joined the one before it
    spreads = [int(np.ptp(lengths[batch])) for batch in batches]
    assert np.mean(spreads) < 15
    again = list(_batches(lengths, 10, (0, 1)))
    assert all((a == b).all() for a, b in zip(batches, again, strict=True))
    assert [len(b) for b in _batches(lengths, 10, (0, 2))] != [len(b) for b in batches] or any(
        (a != b).any() for a, b in zip(_batches(lengths, 10, (0, 2)), batches, strict=False)
    )


def test_probabilities_come_in_the_order_of_the_texts() -> None:
    model, _ = train(settings(epochs=1))
    held = Texts(300, 3)
    together = predict_probabilities(model, held)
    np.testing.assert_allclose(together.sum(axis=1), 1.0, atol=1e-5)
    with torch.inference_mode():
        for i in (0, 7, 299):
            alone = model(held.batch(np.array([i]))).softmax(dim=1)[0].numpy()
            np.testing.assert_allclose(together[i], alone, atol=1e-5)
