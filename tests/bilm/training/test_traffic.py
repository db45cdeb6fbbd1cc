from __future__ import annotations

import pytest

from bilm.training.config import load_config
from bilm.training.traffic import Traffic, traffic
from tests.conftest import ROOT

BIG = ROOT / "configs" / "big.json"
COUNTS = {"token encoder": 18_037_840, "LSTMs": 75_563_008, "softmax": 407_050_623}


def test_sparse_traffic_is_small() -> None:
    config = load_config(BIG)
    sampled = traffic(config, COUNTS, world=2)
    assert sampled.dense == 4 * (18_037_840 + 75_563_008)
    table = 407_050_623 * 4
    assert sampled.sparse < 0.05 * table
    full = load_config(BIG, ["model.softmax.kind=full"])
    assert traffic(full, COUNTS, world=2) == Traffic(4.0 * sum(COUNTS.values()), 0.0)
    assert traffic(config, COUNTS, world=1) == Traffic(0.0, 0.0)


def test_sparse_traffic_hardly_grows_with_ranks() -> None:
    config = load_config(BIG)
    shares = [
        traffic(config, COUNTS, world).sparse / (2 * (world - 1) / world) for world in (2, 8, 64)
    ]
    assert shares[1] == pytest.approx(shares[0], rel=0.25)
    assert shares[2] < 1.5 * shares[0]  # the same target on several ranks is sent several times


def test_bfloat16_halves_dense_traffic() -> None:
    config = load_config(BIG, ["deepspeed.communication_data_type=bf16"])
    assert traffic(config, COUNTS, 8).dense == traffic(load_config(BIG), COUNTS, 8).dense / 2
