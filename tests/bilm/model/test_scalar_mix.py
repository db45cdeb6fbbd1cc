from __future__ import annotations

import numpy as np
import pytest
import torch

from bilm.model.scalar_mix import ScalarMix

LAYERS, SENTENCES, WORDS, DIM = 3, 4, 6, 5


def case() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    layers = torch.randn(LAYERS, SENTENCES, WORDS, DIM)
    mask = torch.arange(WORDS) < torch.tensor([6, 1, 3, 0]).unsqueeze(1)
    return layers, mask


def test_starts_as_plain_average() -> None:
    layers, mask = case()
    mixed = ScalarMix(LAYERS)(layers, mask)
    torch.testing.assert_close(mixed[mask], layers.mean(dim=0)[mask])
    assert not mixed[~mask].any()


def test_applies_weights_and_gamma() -> None:
    layers, _ = case()
    w = np.array([0.3, -0.7, 1.1])
    shares = np.exp(w) / np.exp(w).sum()
    mix = ScalarMix(LAYERS, initial_weights=w.tolist())
    mix.gamma.data.fill_(1.7)
    mixed = mix(list(layers))
    expected = 1.7 * np.einsum("l,lswd->swd", shares, layers.numpy())
    np.testing.assert_allclose(mixed.detach().numpy(), expected, atol=1e-6)


def test_layer_norm_uses_mean_and_variance_of_unmasked_elements() -> None:
    layers, mask = case()
    layers[:, ~mask] = 1e6  # padding must be ignored
    mixed = ScalarMix(LAYERS, layer_norm=True, initial_weights=[0, 50, 0])(layers, mask)
    elements = layers[1][mask].numpy()
    expected = (elements - elements.mean()) / elements.std()
    np.testing.assert_allclose(mixed[mask].detach().numpy(), expected, atol=1e-5)


def test_penalty_applies_to_weights_only() -> None:
    mix = ScalarMix(LAYERS, initial_weights=[1, 2, 3], penalty=0.5)
    mix.gamma.data.fill_(100.0)
    penalty = mix.regularization()
    assert penalty.item() == pytest.approx(7.0)
    penalty.backward()
    assert mix.weights.grad is not None
    assert mix.weights.grad.tolist() == [1.0, 2.0, 3.0]
    assert mix.gamma.grad is None


def test_frozen_mix_has_no_gradients() -> None:
    layers, mask = case()
    mix = ScalarMix(LAYERS)
    mix(layers, mask).sum().backward()
    assert all(p.grad is not None for p in mix.parameters())
    frozen = ScalarMix(LAYERS, trainable=False, initial_weights=[1, 0, 0])
    assert not any(p.requires_grad for p in frozen.parameters())


def test_applies_dropout_only_in_training() -> None:
    layers, mask = case()
    mix = ScalarMix(LAYERS, dropout=0.5)
    assert ((mix.train()(layers, mask) == 0) & mask.unsqueeze(-1)).any()
    assert torch.equal(mix.eval()(layers, mask), mix(layers, mask))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_layers": 0}, "num_layers is 0"),
        ({"num_layers": 3, "initial_weights": [1, 2]}, "2 numbers; it must have 3"),
        ({"num_layers": 3, "dropout": 1.0}, "dropout is 1.0"),
        ({"num_layers": 3, "penalty": -1}, "penalty is -1"),
    ],
)
def test_rejects_invalid_arguments(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ScalarMix(**arguments)  # type: ignore[arg-type]


def test_rejects_wrong_number_of_layers() -> None:
    with pytest.raises(ValueError, match="got 2 layers; the mix has 3"):
        ScalarMix(3)(torch.zeros(2, 1, 1, 1))
