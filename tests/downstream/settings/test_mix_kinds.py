from __future__ import annotations

import pytest

from downstream.settings.mix_kinds import MixKind


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("trainable", [0, 1, 2]),
        ("average", [0, 1, 2]),
        ("top", [2]),
        ("layer:0", [0]),
        ("layer:1", [1]),
    ],
)
def test_parses_names_and_finds_layers(text: str, layers: list[int]) -> None:
    kind = MixKind.parse(text)
    assert str(kind) == text
    assert list(kind.layers(3)) == layers


@pytest.mark.parametrize("text", ["", "best", "layer:", "layer:-1", "layer:1000", "top ", "Top"])
def test_rejects_unknown_names(text: str) -> None:
    with pytest.raises(ValueError, match="is not a mix; use one of trainable"):
        MixKind.parse(text)


def test_rejects_missing_layer() -> None:
    with pytest.raises(ValueError, match="layer:3: the model has 3 layers"):
        MixKind.parse("layer:3").layers(3)
