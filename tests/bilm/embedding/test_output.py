from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from bilm.embedding.output import Output, mix_weights
from bilm.model.scalar_mix import ScalarMix
from tests.bilm.embedding.golden_model import SENTENCES, golden_embedder


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layers": "both"}, "layers is 'both'"),
        ({"layers": [1.0, float("nan"), 0.0]}, "finite"),
        ({"pool": "sum"}, "pool is 'sum'"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
    ],
)
def test_rejects_invalid_options(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Output(**arguments)


def test_mix_weights_equal_a_scalar_mix() -> None:
    embedder = golden_embedder()
    mix = ScalarMix(3, initial_weights=[0.3, -1.0, 2.0])
    mix.gamma.data.fill_(1.7)
    (mixed,) = embedder.embed(SENTENCES[:1], output=Output(mix_weights(mix)))
    (layers,) = embedder.embed(SENTENCES[:1])
    expected = mix(torch.from_numpy(layers)).detach().numpy()
    np.testing.assert_allclose(mixed, expected, atol=1e-6)
    with pytest.raises(ValueError, match="layer_norm"):
        mix_weights(ScalarMix(3, layer_norm=True))
