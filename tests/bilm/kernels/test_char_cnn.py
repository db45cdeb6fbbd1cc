"""The character CNN by table look-up compared with convolutions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bilm.kernels import backends
from bilm.model.config import CharacterConfig
from bilm.model.token_encoder import TokenEncoder
from bilm.text.characters import char_ids
from tests.bilm.conftest import needs_compiler

pytestmark = needs_compiler

WORDS = ["<S>", "</S>", "", "a", "of", "bank", "Naïve", "日本語", "x" * 45, "y" * 48, "z" * 99]
WORDS += [f"word{i}" * (i % 7) for i in range(60)]


def encoder_of(dtype: torch.dtype, max_characters: int) -> TokenEncoder:
    config = CharacterConfig(
        embedding_dim=5,
        filters=((1, 3), (2, 40), (3, 64), (7, 70)),
        num_highway=1,
        max_characters=max_characters,
    )
    torch.manual_seed(0)
    encoder = TokenEncoder(config, 16).to(dtype)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.normal_(0.0, 0.5)
    return encoder


def run(encoder: TokenEncoder) -> dict[str, Tensor]:
    ids = torch.from_numpy(char_ids(WORDS, encoder.config.max_characters)).long()
    out = encoder(ids)
    torch.manual_seed(1)
    (out * torch.randn_like(out)).sum().backward()
    grads = {name: p.grad for name, p in encoder.named_parameters()}
    return {"out": out.detach(), **{n: g.clone() for n, g in grads.items() if g is not None}}


@pytest.mark.parametrize("max_characters", [50, 8])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)], ids=["f64", "f32"]
)
def test_equals_convolutions(
    dtype: torch.dtype, tolerance: float, max_characters: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookup = run(encoder_of(dtype, max_characters))
    monkeypatch.setattr(backends, "requested", lambda: "torch")
    plain = run(encoder_of(dtype, max_characters))
    assert lookup.keys() == plain.keys()
    for name, expected in plain.items():
        scale = max(1.0, float(expected.abs().max()))
        torch.testing.assert_close(lookup[name], expected, rtol=0, atol=tolerance * scale, msg=name)


def test_forward_at_published_size_is_within_1e_6(monkeypatch: pytest.MonkeyPatch) -> None:
    filters = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
    config = CharacterConfig(embedding_dim=16, filters=filters, num_highway=2)
    torch.manual_seed(0)
    encoder = TokenEncoder(config, 512)
    ids = torch.from_numpy(char_ids(WORDS)).long()
    with torch.no_grad():
        lookup = encoder(ids)
        monkeypatch.setattr(backends, "requested", lambda: "torch")
        plain = encoder(ids)
    assert (lookup - plain).abs().max() < 1e-6


def test_accepts_no_words() -> None:
    assert encoder_of(torch.float32, 50)(torch.zeros(0, 50, dtype=torch.long)).shape == (0, 16)
