"""The character CNN by table look-up compared with convolutions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bilm.kernels import backends, char_cnn
from bilm.kernels.char_cnn import filter_maxima
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


@pytest.mark.parametrize(
    ("ids", "num_filters"),
    [
        ([[258, 260, 97, 259, 260, 260], [260, 260, 260, 260, 260, 98]], 5),  # padding within words
        ([[258, 97, 98, 259, 260, 260]], 3000),
    ],
)
def test_equals_convolutions_for_any_ids(
    ids: list[list[int]], num_filters: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    embedding, weight = torch.randn(261, 4).double(), torch.randn(num_filters, 4, 2).double()
    lookup = filter_maxima(torch.tensor(ids), embedding, [weight])
    monkeypatch.setattr(backends, "requested", lambda: "torch")
    torch.testing.assert_close(lookup, filter_maxima(torch.tensor(ids), embedding, [weight]))


def test_nan_is_the_maximum() -> None:
    embedding = torch.randn(261, 4)
    embedding[97] = torch.nan
    maxima = filter_maxima(torch.tensor([[98, 97, 98]]), embedding, [torch.randn(2, 4, 1)])
    assert maxima.isnan().all()


def test_backward_accepts_no_filters() -> None:
    char_cnn._lookup_backward(
        words=1,
        max_characters=1,
        ids=torch.zeros(1, 1, dtype=torch.int16),
        width=1,
        characters=1,
        count=0,
        grad=torch.zeros(1, 0),
        winner=torch.zeros(1, 0, dtype=torch.int16),
        stride=0,
        grad_table=torch.zeros(1, 1, 0),
    )
