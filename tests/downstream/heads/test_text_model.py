from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from downstream.features.batches import Batch, pooled_batch, poolings_of, word_batch
from downstream.features.texts_to_layers import pool
from downstream.heads.layers import masked_max, masked_mean, reversed_places
from downstream.heads.text_model import TextModel
from downstream.settings.sections import HeadSettings, MixSettings

RNG = np.random.default_rng(0)
TEXTS = [RNG.standard_normal((n, 3, 6)).astype(np.float32) for n in (5, 2, 1, 4)]
VECTORS = [RNG.standard_normal((len(text), 4)).astype(np.float32) for text in TEXTS]


def model(head: str, mix: str = "trainable", vector_dim: int = 4, **changes: object) -> TextModel:
    torch.manual_seed(0)
    settings = HeadSettings.model_validate(
        {"kind": head, "vectors": "some", "encoder_dim": 5, **changes}
    )
    return TextModel(
        mix, MixSettings(), settings, num_layers=3, dim=6, vector_dim=vector_dim, num_classes=3
    ).eval()


def batch_for(head: str, indices: list[int], vectors: bool = True) -> Batch:
    texts, beside = [TEXTS[i] for i in indices], [VECTORS[i] for i in indices]
    if head in ("attention", "bilstm", "gru"):
        return word_batch(texts, beside if vectors else None)
    pooled = np.stack([np.stack([v.mean(axis=0), v.max(axis=0)]) for v in beside])
    layers = np.stack([pool(text) for text in texts])
    return pooled_batch(layers, pooled if vectors else None, poolings_of(head))


HEADS = ("mean", "max", "mean_max", "attention", "bilstm", "gru")


@pytest.mark.parametrize("head", HEADS)
def test_a_text_scores_the_same_whatever_stands_beside_it(head: str) -> None:
    net = model(head, hidden_dim=8)
    together = net(batch_for(head, [0, 1, 2, 3]))
    assert together.shape == (4, 3)
    for i in range(4):
        torch.testing.assert_close(net(batch_for(head, [i]))[0], together[i], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("mix", ["trainable", "learned", "none"])
def test_everything_that_can_learn_gets_a_gradient(head: str, mix: str) -> None:
    net = model(head, mix).train()
    loss = F.cross_entropy(net(batch_for(head, [0, 1, 2, 3])), torch.tensor([0, 1, 2, 0]))
    (loss + net.regularization()).backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        if name != "head.attend.bias":  # adds the same to every word, so that it changes nothing
            assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("place", ["input", "output", "both"])
@pytest.mark.parametrize("head", ["bilstm", "gru"])
def test_where_elmo_enters(head: str, place: str) -> None:
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


def test_the_mean_of_the_mix_is_the_mix_of_means() -> None:
    net = model("mean", mix="trainable", vector_dim=0, vectors=None)
    mix = net.mixes["input"]
    next(p for p in mix.parameters() if p.shape == (3,)).data = torch.tensor([0.5, -1.0, 2.0])
    words = batch_for("attention", [0, 1, 2, 3], vectors=False)
    pooled = batch_for("mean", [0, 1, 2, 3], vectors=False)
    assert words.mask is not None
    mixed_then_pooled = masked_mean(mix(words.layers, words.mask), words.mask)
    torch.testing.assert_close(mix(pooled.layers, None).squeeze(1), mixed_then_pooled)


def test_a_text_is_turned_round_without_its_padding() -> None:
    mask = torch.tensor([[True, True, True, False], [True, False, False, False]])
    assert reversed_places(mask).tolist() == [[2, 1, 0, 3], [0, 1, 2, 3]]


def test_pooling_leaves_padding_out() -> None:
    words = torch.tensor([[[-1.0, -2.0], [-3.0, -1.0], [9.0, 9.0]]])
    mask = torch.tensor([[True, True, False]])
    assert masked_max(words, mask).tolist() == [[-1.0, -1.0]]
    assert masked_mean(words, mask).tolist() == [[-2.0, -1.5]]


def test_word_batches_are_padded_with_zeros() -> None:
    batch = word_batch(TEXTS[:2], VECTORS[:2])
    assert batch.layers.shape == (3, 2, 5, 6)
    assert batch.vectors is not None
    assert batch.mask is not None
    np.testing.assert_array_equal(batch.layers[:, 1, :2].permute(1, 0, 2).numpy(), TEXTS[1])
    assert batch.layers[:, 1, 2:].abs().max() == 0
    np.testing.assert_array_equal(batch.vectors[0].numpy(), VECTORS[0])
    assert batch.mask.sum(dim=1).tolist() == [5, 2]


def test_which_poolings() -> None:
    assert [poolings_of(head) for head in ("mean", "max", "mean_max")] == [[0], [1], [0, 1]]
