"""The encoder compared with a reference in plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from bilm.model.config import CharacterConfig
from bilm.model.token_encoder import Highway, TokenEncoder, WordEmbedding
from bilm.text.characters import char_ids

WORDS = ["<S>", "</S>", "a", "bank", "Naïve", "日本語", "x" * 80]


def config(**changes: object) -> CharacterConfig:
    fields = {"embedding_dim": 4, "filters": ((1, 3), (2, 4), (5, 6)), "num_highway": 2}
    return CharacterConfig.model_validate({**fields, **changes})


def randomized(encoder: TokenEncoder) -> TokenEncoder:
    """Set random weights: initial biases of 0 or -2 would hide errors in their use."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.normal_(0.0, 0.5)
    return encoder


def reference(encoder: TokenEncoder, ids: np.ndarray) -> np.ndarray:
    weights = {name: p.detach().double().numpy() for name, p in encoder.named_parameters()}
    act = (lambda x: max(x, 0.0)) if encoder.config.activation == "relu" else math.tanh
    rows = []
    for word in ids:
        embedded = weights["char_embedding"][word]  # (chars, char_dim)
        features = []
        for k, (width, count) in enumerate(encoder.config.filters):
            for c in range(count):
                kernel = weights[f"filter_weights.{k}"][c].T  # (width, char_dim)
                sums = [
                    (embedded[p : p + width] * kernel).sum() + weights[f"filter_biases.{k}"][c]
                    for p in range(len(word) - width + 1)
                ]
                features.append(act(max(sums)))
        x = np.array(features)
        for k in range(encoder.config.num_highway):
            gate = x @ weights[f"highways.{k}.gate_weight"] + weights[f"highways.{k}.gate_bias"]
            gate = 1 / (1 + np.exp(-gate))
            new = x @ weights[f"highways.{k}.transform_weight"]
            new = np.maximum(new + weights[f"highways.{k}.transform_bias"], 0)
            x = gate * new + (1 - gate) * x
        if "projection_weight" in weights:
            x = x @ weights["projection_weight"] + weights["projection_bias"]
        rows.append(x)
    return np.array(rows)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("num_highway", [0, 1, 3])
@pytest.mark.parametrize("output_dim", [7, 13])
def test_matches_reference(activation: str, num_highway: int, output_dim: int) -> None:
    encoder = randomized(
        TokenEncoder(config(activation=activation, num_highway=num_highway), output_dim)
    )
    ids = char_ids(WORDS)
    ours = encoder(torch.from_numpy(ids).long()).detach().numpy()
    np.testing.assert_allclose(ours, reference(encoder, ids), atol=1e-5)


def test_omits_projection_if_widths_are_equal() -> None:
    assert TokenEncoder(config(), 13).projection_weight is None
    assert TokenEncoder(config(), 12).projection_weight is not None


def test_initial_weights_have_expected_scale() -> None:
    torch.manual_seed(0)
    fields = {"embedding_dim": 16, "filters": ((4, 512), (6, 1536)), "num_highway": 1}
    relu = TokenEncoder(CharacterConfig.model_validate(fields), 512)
    assert relu.char_embedding.abs().max() <= 1
    assert relu.char_embedding.std().item() == pytest.approx(2 / math.sqrt(12), rel=0.03)
    for weight in relu.filter_weights:
        assert weight.abs().max() <= 0.05
        assert weight.std().item() == pytest.approx(0.1 / math.sqrt(12), rel=0.03)
    assert all(not bias.any() for bias in relu.filter_biases)
    highway = relu.highways[0]
    assert isinstance(highway, Highway)
    assert (highway.gate_bias == -2).all()
    assert not highway.transform_bias.any()
    for weight in (highway.gate_weight, highway.transform_weight, relu.projection_weight):
        assert weight is not None
        assert weight.std().item() == pytest.approx(math.sqrt(1 / 2048), rel=0.01)
    assert relu.projection_bias is not None
    assert not relu.projection_bias.any()
    tanh = TokenEncoder(CharacterConfig.model_validate({**fields, "activation": "tanh"}), 512)
    for (width, _), weight in zip(tanh.config.filters, tanh.filter_weights, strict=True):
        assert weight.std().item() == pytest.approx(math.sqrt(1 / (width * 16)), rel=0.03)


def test_word_embedding_initializes_and_looks_up_rows() -> None:
    torch.manual_seed(0)
    embedding = WordEmbedding(1000, 24, sparse=False)
    limit = math.sqrt(6 / 1024)
    assert embedding.weight.abs().max() <= limit
    assert embedding.weight.abs().max() > 0.99 * limit
    assert torch.equal(embedding(torch.tensor([5, 5])), embedding.weight[[5, 5]])
