"""Batches of long texts are computed in parts, which bounds their memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from downstream.features.batches import Batch, Examples, FeatureShape, Ids, word_batch
from downstream.heads.text_model import TextModel
from downstream.settings.mix_kinds import MixKind
from downstream.settings.sections import HeadTraining
from downstream.training.fit import _within_words, fit, predict_probabilities

LENGTHS = np.array([1, 2, 2, 3, 9, 30])


def test_parts_have_a_limited_number_of_words() -> None:
    indices = np.arange(6)
    parts = [part.tolist() for part in _within_words(indices, LENGTHS, 8)]
    assert parts == [[0, 1, 2], [3], [4], [5]]
    assert [part.tolist() for part in _within_words(indices, LENGTHS, 1000)] == [[0, 1, 2, 3, 4, 5]]
    assert [part.tolist() for part in _within_words(indices, LENGTHS, None)] == [[0, 1, 2, 3, 4, 5]]
    unsorted = [part.tolist() for part in _within_words(np.array([4, 0, 1, 2]), LENGTHS, 18)]
    assert unsorted == [[4, 0], [1, 2]]


class RecordingTexts:
    """Random texts of different lengths, which record the shapes of their batches."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.lengths: Ids = rng.integers(1, 20, size=40)
        self.arrays = [rng.standard_normal((n, 3, 4)).astype(np.float32) for n in self.lengths]
        self.labels = np.arange(40) % 2
        self.padded: list[int] = []

    def __len__(self) -> int:
        return len(self.arrays)

    def batch(self, indices: Ids) -> Batch:
        self.padded.append(len(indices) * int(self.lengths[indices].max()))
        return word_batch([self.arrays[i] for i in indices], None)


def train(usual_words: int | None) -> tuple[TextModel, RecordingTexts, list[float]]:
    tree = {
        "head": {"kind": "attention", "encoder_dim": 8, "dropout": 0.0},
        "mix": {"dropout": 0.0},
        "train": {"batch_size": 20, "epochs": 3},
    }
    settings = HeadTraining.model_validate(tree)
    torch.manual_seed(0)
    shape = FeatureShape(3, 4)
    model = TextModel(MixKind("trainable"), settings.mix, settings.head, shape, num_classes=2)
    texts = RecordingTexts()
    other = RecordingTexts()
    history = fit(
        model,
        Examples(texts, texts.labels, usual_words),
        Examples(other, other.labels),
        settings,
        seed=0,
    )
    return model, texts, history.train_loss


def test_parts_give_the_gradients_of_the_batch() -> None:
    whole, texts, losses = train(None)
    parts, bounded, same = train(3)
    assert max(texts.padded) > 60
    assert max(bounded.padded) <= 60
    assert len(bounded.padded) > len(texts.padded) == 6
    np.testing.assert_allclose(same, losses, rtol=1e-4)
    for first, second in zip(whole.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(first, second, rtol=1e-2, atol=1e-4)


def test_prediction_bounds_the_words_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    model, texts, _ = train(None)
    expected = predict_probabilities(model, texts)
    before = len(texts.padded)
    assert texts.padded[-1] > 60
    monkeypatch.setattr("downstream.training.fit._EVALUATION_WORDS", 60)
    np.testing.assert_allclose(predict_probabilities(model, texts), expected, atol=1e-5)
    assert max(texts.padded[before:]) <= 60
