from __future__ import annotations

import numpy as np
import pytest
import torch

from bilm.errors import ConfigError
from downstream.features.batches import FeatureShape
from downstream.heads.mixes import LearnedMix, Mix, layer_shares, make_mix
from downstream.settings.mix_kinds import MixKind
from downstream.settings.sections import MixSettings

LAYERS = torch.randn(3, 4, 5, 6, generator=torch.Generator().manual_seed(0))
MASK = torch.arange(5) < torch.tensor([5, 3, 1, 4])[:, None]
PLAIN = MixSettings(dropout=0.0)


def mix_of(kind: str, settings: MixSettings, seed: int = 0) -> Mix:
    return make_mix(MixKind.parse(kind), FeatureShape(num_layers=3, dim=6), settings, seed)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("average", LAYERS.mean(dim=0)),
        ("trainable", LAYERS.mean(dim=0)),  # before training
        ("top", LAYERS[2]),
        ("layer:0", LAYERS[0]),
        ("layer:1", LAYERS[1]),
    ],
)
def test_mix_combines_its_layers(kind: str, expected: torch.Tensor) -> None:
    mixed = mix_of(kind, PLAIN)(LAYERS, MASK)
    torch.testing.assert_close(mixed, expected * MASK.unsqueeze(-1))


def test_frozen_weights_are_given_or_drawn() -> None:
    given = mix_of("frozen", MixSettings(weights=(0.0, 1.0, -1.0), gamma=2.0))
    np.testing.assert_allclose(given.shares(), np.exp([0, 1, -1]) / np.exp([0, 1, -1]).sum(), 1e-6)
    assert given.scale() == 2.0
    drawn = [mix_of("frozen", PLAIN, seed).shares() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    with pytest.raises(ConfigError, match="--mix-weights has 2 numbers; the model has 3"):
        mix_of("frozen", MixSettings(weights=(0.0, 1.0)))


def test_only_the_trainable_mix_has_gradients_and_a_penalty() -> None:
    settings = MixSettings(penalty=0.5)
    for kind in ("frozen", "average", "top"):
        mix = mix_of(kind, settings)
        assert not any(p.requires_grad for p in mix.parameters())
        assert mix.regularization().item() == 0.0
    mix = mix_of("trainable", settings)
    weights = next(p for p in mix.parameters() if p.shape == (3,))
    weights.data = torch.tensor([1.0, 2.0, 0.0])
    assert mix.regularization().item() == pytest.approx(2.5)
    mix.regularization().backward()
    torch.testing.assert_close(weights.grad, torch.tensor([1.0, 2.0, 0.0]))


def test_learned_mix_reads_every_layer() -> None:
    mix = mix_of("learned", MixSettings(dropout=0.0, dim=7))
    assert isinstance(mix, LearnedMix)
    mixed = mix(LAYERS, MASK)
    assert mixed.shape == (4, 5, 7)
    assert mixed[~MASK].abs().max() == 0
    assert sum(mix.shares()) == pytest.approx(1.0)
    mix.hidden.weight.data[:, 6:] = 0
    assert mix.shares() == [1.0, 0.0, 0.0]
    torch.testing.assert_close(
        mix(LAYERS, MASK), mix(LAYERS * torch.tensor([1.0, 2, 3]).reshape(3, 1, 1, 1), MASK)
    )


@pytest.mark.parametrize("kind", ["trainable", "learned", "top"])
def test_layer_norm_removes_scale_and_shift(kind: str) -> None:
    torch.manual_seed(0)
    mix = mix_of(kind, MixSettings(dropout=0.0, layer_norm=True))
    torch.testing.assert_close(mix(LAYERS, MASK), mix(LAYERS * 3 + 1, MASK))


def test_rejects_missing_layer() -> None:
    with pytest.raises(ConfigError, match="layer:3: the model has 3 layers"):
        mix_of("layer:3", PLAIN)


@pytest.mark.parametrize(
    ("mix", "expected"),
    [
        ("average", [[1 / 3, 1 / 3, 1 / 3]]),
        ("top", [[0, 0, 1]]),
        ("layer:1", [[0, 1, 0]]),
        ("all", [[1, 0, 0], [0, 1, 0], [0, 0, 1]]),
        ([0.5, 2.0, -1.0], [[0.5, 2.0, -1.0]]),
    ],
)
def test_layer_shares_of_fixed_mixes(mix: str | list[float], expected: list[list[float]]) -> None:
    np.testing.assert_allclose(layer_shares(mix, 3), expected)
