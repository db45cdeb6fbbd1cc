from __future__ import annotations

import pytest

from bilm.errors import ConfigError
from bilm.training.config import Config, load_config
from bilm.training.scaling import (
    Link,
    Work,
    efficiency,
    largest_useful_ranks,
    parse_rate,
    scale_step,
    step_seconds,
)
from bilm.training.traffic import HEADER_BYTES, PAYLOAD_BYTES, Traffic
from tests.conftest import ROOT

BIG = ROOT / "configs" / "big.json"
COUNTS = {"token encoder": 18_037_840, "LSTMs": 75_563_008, "softmax": 407_050_623}
GBIT = 1e9 / 8 / (1 + HEADER_BYTES / PAYLOAD_BYTES)  # bytes per second, without headers


def words_over(words_per_second: float) -> Work:
    def compute(config: Config, world: int) -> float:
        words = config.deepspeed.train_batch_size * config.data.unroll_steps
        return words / world / words_per_second

    return Work(load_config(BIG), COUNTS, compute)


@pytest.mark.parametrize(
    ("text", "rate"), [("100Mbit", 1e8), ("1Gbit", 1e9), ("2.5Gbit", 2.5e9), ("200Gbit", 2e11)]
)
def test_parses_rate(text: str, rate: float) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    "text",
    ["", "1", "Gbit", "1 Gbit", "1gbit", "1GB", "1Gbit/s", "-1Gbit", "0Gbit", "1e3Mbit", "1.Gbit"],
)
def test_rejects_other_rates(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--link is .* such as 100Mbit or 10Gbit"):
        parse_rate(text)


def test_single_rank_only_computes() -> None:
    step = scale_step(words_over(1000.0), Link(1e9), 1)
    assert (step.seconds, step.exchange) == (384 * 20 / 1000, 0.0)


def test_hides_buckets_behind_backward_pass() -> None:
    config = load_config(BIG)
    four_buckets = Traffic(dense=100e6)
    # Communication of the last bucket is visible if the link is fast,
    exchange, seconds = step_seconds(config, four_buckets, Link(1e9), 2, compute=12.0)
    assert exchange == pytest.approx(100e6 / GBIT, rel=1e-3)
    assert seconds == pytest.approx(12.0 + 25e6 / GBIT, rel=1e-3)
    # and of all buckets, after the first one is complete, if it is slow.
    _, seconds = step_seconds(config, four_buckets, Link(1e7), 2, compute=12.0)
    assert seconds == pytest.approx(12.0 * (1 / 3 + 2 / 3 / 4) + 100e8 / GBIT, rel=1e-3)


@pytest.mark.parametrize("sent", [Traffic(negatives=50e6), Traffic(targets=50e6)])
def test_rows_are_not_hidden(sent: Traffic) -> None:
    _, seconds = step_seconds(load_config(BIG), sent, Link(1e9), 2, compute=3.0)
    assert seconds == pytest.approx(3.0 + 50e6 / GBIT, rel=1e-3)


def test_other_stages_hide_nothing() -> None:
    config = load_config(BIG, ["deepspeed.zero_optimization.stage=2"])
    _, seconds = step_seconds(config, Traffic(dense=50e6, weights=25e6), Link(1e9), 2, 3.0)
    assert seconds == pytest.approx(3.0 + 75e6 / GBIT, rel=1e-3)


def test_machine_sends_what_one_rank_sends() -> None:
    config, sent = load_config(BIG), Traffic(negatives=50e6)
    alone, shared = (
        step_seconds(config, sent, Link(1e9, ranks_per_machine=each), 8, 1.0)[0] for each in (1, 4)
    )
    assert shared == pytest.approx(alone, rel=1e-2)
    assert step_seconds(config, sent, Link(1e9, ranks_per_machine=8), 8, 1.0)[0] == 0.0
    local = Link(1e9, ranks_per_machine=8, local_bytes_per_second=1e9)
    assert step_seconds(config, sent, local, 8, 1.0)[0] == pytest.approx(0.05, rel=0.1)


def test_weak_scaling_is_more_efficient_than_strong() -> None:
    work, link = words_over(1000.0), Link(1e9)
    one = scale_step(work, link, 1)
    strong = [efficiency(scale_step(work, link, world), one, link) for world in (2, 4, 8, 16)]
    weak = [efficiency(scale_step(work, link, w, 384 * w), one, link) for w in (2, 4, 8, 16)]
    assert strong == sorted(strong, reverse=True)
    assert all(s < w <= 1 for s, w in zip(strong, weak, strict=True))


def test_useful_ranks_have_half_the_efficiency() -> None:
    work, link = words_over(1000.0), Link(1e9)
    useful = largest_useful_ranks(work, link)
    one = scale_step(work, link, 1)
    assert 384 % useful == 0
    assert efficiency(scale_step(work, link, useful), one, link) >= 0.5
    larger = [world for world in range(useful + 1, 385) if 384 % world == 0]
    assert all(efficiency(scale_step(work, link, w), one, link) < 0.5 for w in larger)
    assert largest_useful_ranks(words_over(10.0), Link(1e15)) == 384
