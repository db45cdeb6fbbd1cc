from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from bilm.errors import DivergedError
from downstream.features.batches import Batch, Examples, FeatureShape, Ids, word_batch
from downstream.heads.text_model import TextModel
from downstream.settings.mix_kinds import MixKind
from downstream.settings.sections import HeadTraining
from downstream.training.fit import History, _batches, fit, predict_probabilities


class Texts:
    """Random texts; the classes differ only in the first number of layer 1."""

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


def settings(**train: Any) -> HeadTraining:
    return HeadTraining.model_validate(
        {
            "head": {"kind": "attention", "encoder_dim": 8},
            "train": {"learning_rate": 0.02, "batch_size": 16, "epochs": 12, **train},
            "mix": {"learning_rate": 0.05},
        }
    )


def train(chosen: HeadTraining, seed: int = 0, shift: float = 1.5) -> tuple[TextModel, History]:
    torch.manual_seed(seed)
    kind, shape = MixKind("trainable"), FeatureShape(num_layers=3, dim=4)
    model = TextModel(kind, chosen.mix, chosen.head, shape, num_classes=2)
    texts, heldout = Texts(200, 1, shift), Texts(60, 2, shift)
    history = fit(
        model, Examples(texts, texts.labels), Examples(heldout, heldout.labels), chosen, seed
    )
    return model, history


def test_learns_to_weight_the_informative_layer() -> None:
    model, history = train(settings())
    assert max(history.validation_accuracy) > 0.85
    shares = model.shares()["input"]
    assert shares[1] == max(shares) > 0.4
    assert model.scales()["input"] != 1.0
    assert history.shares[history.best_epoch - 1] == {"input": pytest.approx(shares)}


def test_keeps_weights_of_the_best_epoch() -> None:
    model, history = train(settings(patience=3, epochs=30))
    heldout = Texts(60, 2)
    accuracy = (predict_probabilities(model, heldout).argmax(axis=1) == heldout.labels).mean()
    assert accuracy == pytest.approx(max(history.validation_accuracy))
    assert len(history.validation_accuracy) in (30, history.best_epoch + 3)


def test_minimum_of_steps_repeats_few_examples_within_epochs() -> None:
    chosen = settings(epochs=4, batch_size=16, min_steps=130, patience=4)
    model = TextModel(
        MixKind("trainable"), chosen.mix, chosen.head, FeatureShape(num_layers=3, dim=4), 2
    )
    seen: list[int] = []

    class Recorded(Texts):
        def batch(self, indices: Ids) -> Batch:
            seen.extend(indices.tolist())
            return super().batch(indices)

    texts, heldout = Recorded(48, 1), Texts(60, 2)
    history = fit(
        model, Examples(texts, texts.labels), Examples(heldout, heldout.labels), chosen, 0
    )
    # 4 epochs of 3 batches need 11 passes each for 130 steps.
    assert len(history.train_loss) == 4
    passes = [seen[i : i + 48] for i in range(0, len(seen), 48)]
    assert len(passes) == 4 * 11
    assert all(sorted(own) == list(range(48)) for own in passes)
    assert len(set(map(tuple, passes))) == len(passes)  # each in another order
    assert 0 <= min(history.train_accuracy) <= max(history.train_accuracy) <= 1


def test_minimum_of_steps_leaves_longer_training_unchanged() -> None:
    (_, usual), (_, enough) = train(settings()), train(settings(min_steps=12 * 13))
    assert usual == enough


def test_seed_determines_the_result() -> None:
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


def test_nan_loss_raises() -> None:
    with pytest.raises(DivergedError, match="lower --learning-rate"):
        train(settings(), shift=math.inf)
    with pytest.raises(DivergedError, match="lower --learning-rate"):  # NaN only after the step
        train(settings(epochs=1, batch_size=200, learning_rate=1e30))


def test_batches_contain_every_text_once_with_similar_lengths() -> None:
    lengths = np.random.default_rng(0).integers(1, 100, size=1001)
    batches = list(_batches(lengths, 10, (0, 1)))
    assert sorted(np.concatenate(batches)) == list(range(1001))
    assert min(map(len, batches)) > 1  # the last one was joined with the one before
    spreads = [int(np.ptp(lengths[batch])) for batch in batches]
    assert np.mean(spreads) < 15
    again = list(_batches(lengths, 10, (0, 1)))
    assert all((a == b).all() for a, b in zip(batches, again, strict=True))
    assert [len(b) for b in _batches(lengths, 10, (0, 2))] != [len(b) for b in batches] or any(
        (a != b).any() for a, b in zip(_batches(lengths, 10, (0, 2)), batches, strict=False)
    )


def test_probabilities_are_in_the_order_of_the_texts() -> None:
    model, _ = train(settings(epochs=1))
    heldout = Texts(300, 3)
    together = predict_probabilities(model, heldout)
    np.testing.assert_allclose(together.sum(axis=1), 1.0, atol=1e-5)
    with torch.inference_mode():
        for i in (0, 7, 299):
            alone = model(heldout.batch(np.array([i]))).softmax(dim=1)[0].numpy()
            np.testing.assert_allclose(together[i], alone, atol=1e-5)
