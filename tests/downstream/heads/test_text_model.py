from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from downstream.features.batches import (
    Batch,
    FeatureShape,
    pool_vectors,
    pooled_batch,
    word_batch,
)
from downstream.features.texts_to_layers import pool_words, poolings_of
from downstream.heads.layers import masked_mean
from downstream.heads.text_model import TextModel
from downstream.settings.mix_kinds import MixKind
from downstream.settings.sections import HeadSettings, MixSettings

RNG = np.random.default_rng(0)
TEXTS = [RNG.standard_normal((n, 3, 6)).astype(np.float32) for n in (5, 2, 1, 4)]
VECTORS = [RNG.standard_normal((len(text), 4)).astype(np.float32) for text in TEXTS]


def model(head: str, mix: str = "trainable", vector_dim: int = 4, **changes: object) -> TextModel:
    torch.manual_seed(0)
    settings = HeadSettings.model_validate(
        {"kind": head, "vectors": "some", "encoder_dim": 5, **changes}
    )
    shape = FeatureShape(3, 6, vector_dim, num_poolings=len(poolings_of(head)))
    return TextModel(MixKind.parse(mix), MixSettings(), settings, shape, num_classes=3).eval()


def batch_for(head: str, indices: list[int], vectors: bool = True) -> Batch:
    texts, beside = [TEXTS[i] for i in indices], [VECTORS[i] for i in indices]
    if head in ("attention", "bilstm", "gru"):
        return word_batch(texts, beside if vectors else None)
    layers = np.stack([pool_words(text) for text in texts])
    return pooled_batch(layers, pool_vectors(beside) if vectors else None, poolings_of(head))


HEADS = ("mean", "max", "mean_max", "attention", "bilstm", "gru")


@pytest.mark.parametrize("head", HEADS)
def test_scores_do_not_depend_on_the_batch(head: str) -> None:
    net = model(head, hidden_dim=8)
    together = net(batch_for(head, [0, 1, 2, 3]))
    assert together.shape == (4, 3)
    for i in range(4):
        torch.testing.assert_close(net(batch_for(head, [i]))[0], together[i], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("mix", ["trainable", "learned", "none"])
def test_every_parameter_gets_a_gradient(head: str, mix: str) -> None:
    net = model(head, mix).train()
    loss = F.cross_entropy(net(batch_for(head, [0, 1, 2, 3])), torch.tensor([0, 1, 2, 0]))
    (loss + net.regularization()).backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        if name != "head.attend.bias":  # adds the same to every word, which has no effect
            assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("place", ["input", "output", "both"])
@pytest.mark.parametrize("head", ["bilstm", "gru"])
def test_mix_enters_at_the_chosen_place(head: str, place: str) -> None:
    net = model(head, elmo_at=place)
    assert set(net.shares()) == {"input", "output"} if place == "both" else {place}
    for direction in ("rightward", "leftward"):
        encoder = net.head.get_submodule(direction)
        assert encoder.input_size == (4 if place == "output" else 10)
    assert net(batch_for(head, [0, 1])).shape == (2, 3)
    if place == "both":
        weights = [p for name, p in net.named_parameters() if name.endswith("mix.weights")]
        assert len(weights) == 2
        assert weights[0] is not weights[1]


def test_mean_of_the_mix_equals_mix_of_the_means() -> None:
    net = model("mean", mix="trainable", vector_dim=0, vectors=None)
    mix = net.mixes["input"]
    next(p for p in mix.parameters() if p.shape == (3,)).data = torch.tensor([0.5, -1.0, 2.0])
    words = batch_for("attention", [0, 1, 2, 3], vectors=False)
    pooled = batch_for("mean", [0, 1, 2, 3], vectors=False)
    assert words.mask is not None
    mixed_then_pooled = masked_mean(mix(words.layers, words.mask), words.mask)
    torch.testing.assert_close(mix(pooled.layers, None).squeeze(1), mixed_then_pooled)


def test_evaluation_compares_probabilities_with_labels() -> None:
    net = model("mean")
    scores = torch.tensor([[2.0, 0.0, 0.0], [0.0, 3.0, 0.0]])
    labels = torch.tensor([0, 2])
    evaluation = net.evaluate(net.decode(scores), labels.numpy())
    assert evaluation.accuracy == 0.5
    assert evaluation.loss == pytest.approx(net.loss(scores, labels).item())
    assert net.count_correct(scores, labels) == 1


def test_attention_of_each_word_sums_to_one() -> None:
    net = model("attention")
    batch = batch_for("attention", [0, 1])
    weights = net.word_weights(batch)
    assert weights is not None
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(2))
    assert weights[1, 2:].tolist() == [0.0, 0.0, 0.0]  # padding
    assert model("gru").word_weights(batch_for("gru", [0, 1])) is None
