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
    reports = 8.0 * (2 + 2)  # float64: two losses, the number of predictions, the request to stop
    assert traffic(full, COUNTS, world=2) == Traffic(4.0 * sum(COUNTS.values()), reports=reports)
    assert traffic(config, COUNTS, world=1) == Traffic()


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


@pytest.mark.parametrize(
    ("stage", "gradients", "weights"), [(0, 2.0, 0.0), (1, 2.0, 1.0), (2, 2.0, 1.0), (3, 1.0, 2.0)]
)
def test_stages_gather_weights(stage: int, gradients: float, weights: float) -> None:
    overrides = [f"deepspeed.zero_optimization.stage={stage}", "model.softmax.kind=full"]
    sent = traffic(load_config(BIG, overrides), COUNTS, world=4)
    unit = 4.0 * sum(COUNTS.values()) * 3 / 4
    assert (sent.dense, sent.weights) == (gradients * unit, weights * unit)


def test_payload_is_sum_of_kinds() -> None:
    sent = traffic(load_config(BIG), COUNTS, world=8)
    kinds = (sent.dense, sent.negatives, sent.targets, sent.ids, sent.weights, sent.reports)
    assert min(sent.negatives, sent.targets, sent.ids, sent.reports) > 0
    assert sent.payload == pytest.approx(sum(kinds))
    assert sent.headers / sent.payload == pytest.approx(66 / 1448)
