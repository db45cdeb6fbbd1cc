from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from downstream.features.batches import Examples, Ids
from downstream.features.pair_source import PairSource
from downstream.features.plain_words import PlainWords, WordLayersFile
from downstream.features.word_ranges import WordRanges
from downstream.heads.pair_model import PairDescription, PairModel
from downstream.heads.saved_head import FileRecord
from downstream.settings.common import MixSettings
from downstream.settings.pairs import PairHeadSettings, PairSettings
from downstream.training.fit import fit

TEXTS = [["the", "cat", "sat", "on"], ["a"], ["mat", "the", "x"]]
PAIRS = np.array([[0, 1], [2, 0], [1, 1], [0, 2]])


def model(**changes: Any) -> PairModel:
    torch.manual_seed(0)
    head = {"encoder_dim": 5, "hidden_dim": 6, "dropout": 0.0, **changes.pop("head", {})}
    fields: dict[str, Any] = {
        "format": "bilm-pair-classifier",
        "version": 1,
        "bilm": FileRecord(path="", digest=""),
        "vectors": None,
        "vector_dim": 4,
        "mix_kind": "trainable",
        "mix": MixSettings(dropout=0.0),
        "num_layers": 3,
        "dim": 6,
        "seed": 0,
        "classes": ("x", "y", "z"),
        "head": PairHeadSettings.model_validate(head),
        "tokenized": True,
        "max_words": 9,
    }
    return PairDescription(**{**fields, **changes}).build().eval()


def source(texts: Sequence[Sequence[str]] = TEXTS, indices: Ids = PAIRS) -> PairSource:
    rng = np.random.default_rng(0)
    words = PlainWords.of_texts(texts)
    layers = rng.standard_normal((len(words.word_ids), 3, 6)).astype(np.float32)
    table = rng.standard_normal((len(words.types), 4)).astype(np.float32)
    spelled = WordRanges(WordLayersFile(words, layers), table, characters=True)
    return PairSource(spelled, indices[:, 0], indices[:, 1])


CASES: list[dict[str, Any]] = [
    {},
    {"mix_kind": "none"},
    {"mix_kind": "none", "vector_dim": 4, "head": {"characters": True}},
    {"mix_kind": "learned", "head": {"elmo_at": "both", "characters": True}},
    {"head": {"elmo_at": "output"}},
    {"head": {"elmo_at": "both", "shortcut": False}},
]


@pytest.mark.parametrize("changes", CASES)
def test_scores_do_not_depend_on_the_batch(changes: dict[str, Any]) -> None:
    net, pairs = model(**changes), source()
    together = net(pairs.batch(np.arange(4)))
    assert together.shape == (4, 3)
    for i in range(4):
        alone = net(pairs.batch(np.array([i])))
        torch.testing.assert_close(alone[0], together[i], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("changes", CASES)
def test_every_parameter_gets_a_gradient(changes: dict[str, Any]) -> None:
    net, pairs = model(**changes).train(), source()
    loss = net.loss(net(pairs.batch(np.arange(4))), torch.tensor([0, 1, 2, 0]))
    (loss + net.regularization()).backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
        assert torch.isfinite(parameter.grad).all(), name


@pytest.mark.parametrize("changes", CASES)
def test_overfits_20_examples(changes: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    texts = [[f"{i}", *"abcd"[: rng.integers(4)]] for i in range(20)]
    indices = np.stack([np.arange(20), rng.permutation(20)], axis=1)
    examples = Examples(source(texts, indices), rng.integers(3, size=20))
    tree = {
        "model": "m",
        "output": "o",
        "data": {"train": "t", "test": "t"},
        "train": {"epochs": 45, "patience": 45, "batch_size": 5, "learning_rate": 0.01},
    }
    head = {**changes.get("head", {}), "encoder_dim": 16, "hidden_dim": 16}
    net = model(**{**changes, "head": head})
    history = fit(net, examples, examples, PairSettings.model_validate(tree), seed=0)
    assert max(history.validation_accuracy) == 1.0


def test_mixes_are_at_the_requested_places() -> None:
    for place, expected in (("input", {"input"}), ("both", {"input", "output"})):
        net = model(head={"elmo_at": place})
        assert set(net.shares()) == expected
        weights = {name for name, _ in net.named_parameters() if name.startswith("mixes.")}
        assert {name.split(".")[1] for name in weights} == expected
    assert model(mix_kind="none").shares() == {}


@pytest.mark.parametrize("shortcut", [False, True])
def test_attention_is_that_of_a_plain_computation(shortcut: bool) -> None:
    """Compare the scores of a pair with a computation word by word, without padding or batches."""
    net, pairs = model(mix_kind="none", head={"shortcut": shortcut}), source()
    batch = pairs.batch(np.array([3]))
    assert batch.vectors is not None
    first, second = batch.vectors[0], batch.vectors[1, :3]
    a, b = _encoded(net, first), _encoded(net, second)
    pooled = [_composed(net, a, b), _composed(net, b, a)]
    expected = net.classify(torch.cat(pooled))
    torch.testing.assert_close(net(batch)[0], expected, atol=1e-6, rtol=1e-5)


def _encoded(net: PairModel, words: Tensor) -> Tensor:
    encoded = _bilstm(net.encode, words)
    return torch.cat([encoded, words], dim=1) if net.has_shortcut else encoded


def _bilstm(layer: Any, words: Tensor) -> Tensor:
    leftward = layer.leftward(words.flip(0))[0].flip(0)
    return torch.cat([layer.rightward(words)[0], leftward], dim=1)


def _composed(net: PairModel, words: Tensor, others: Tensor) -> Tensor:
    rows = []
    for word in words:
        weights = torch.stack([word @ other for other in others]).softmax(dim=0)
        mean = sum((w * o for w, o in zip(weights, others, strict=True)), torch.zeros(()))
        rows.append(torch.cat([word, mean, word - mean, word * mean]))
    composed = _bilstm(net.compose, torch.relu(net.project(torch.stack(rows))))
    return torch.cat([composed.amax(dim=0), composed.mean(dim=0)])


def test_order_of_the_texts_matters() -> None:
    net, texts = model(), source()
    swapped = PairSource(texts._texts, PAIRS[:, 1], PAIRS[:, 0])
    one, two = net(texts.batch(np.array([0]))), net(swapped.batch(np.array([0])))
    assert (one - two).abs().max() > 1e-4


def test_texts_of_a_pair_share_dropout_masks() -> None:
    net = model(head={"dropout": 0.5}, mix=MixSettings(dropout=0.5)).train()
    torch.manual_seed(0)
    values = torch.ones(6, 4, 50)
    for dropout in (net.dropout, net.mixes["input"].dropout):
        dropped = dropout(values)
        assert torch.equal(dropped[:3], dropped[3:])
        assert not torch.equal(dropped[0], dropped[1])
        assert set(dropped.unique().tolist()) == {0.0, 2.0}
        assert torch.equal(dropped[:, 0], dropped[:, 3])


def test_lengths_are_those_of_the_longer_text() -> None:
    assert source().lengths.tolist() == [4, 4, 1, 4]
    assert len(source()) == 4


def test_unknown_labels_are_errors_without_a_loss() -> None:
    net = model()
    probabilities = np.array([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]], dtype=np.float32)
    both = net.evaluate(probabilities, np.array([0, 3]))
    assert both.accuracy == 0.5
    assert both.loss == pytest.approx(np.log(2), rel=1e-6)
    assert net.evaluate(probabilities, np.array([3, 4])).loss == 0.0
