from __future__ import annotations

import pytest

from bilm.errors import ConfigError
from bilm.training.config import Config, load_config
from bilm.training.scaling import (
    Link,
    Work,
    bucket_shares,
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


def exchange_and_step(
    sent: Traffic, link: Link, world: int, compute: float, *overrides: str
) -> tuple[float, float]:
    work = Work(load_config(BIG, overrides), COUNTS, lambda *_: compute)
    return step_seconds(work, sent, link, world, compute)


def test_parts_are_sent_in_order_of_backward() -> None:
    lstm, encoder, softmax = COUNTS["LSTMs"] / 4, COUNTS["token encoder"], COUNTS["softmax"]
    sizes = [lstm, lstm, lstm, lstm, encoder]
    config = load_config(BIG)
    assert bucket_shares(config, COUNTS) == pytest.approx([size / sum(sizes) for size in sizes])
    full = bucket_shares(load_config(BIG, ["model.softmax.kind=full"]), COUNTS)
    assert full[0] == pytest.approx(softmax / sum(COUNTS.values()))
    small = {"token encoder": 1_000_000, "LSTMs": 8_000_000, "softmax": 10}
    assert bucket_shares(config, small) == pytest.approx([6 / 9, 3 / 9])  # at most 25 MB each


def test_hides_gradients_behind_backward_pass() -> None:
    sent = Traffic(dense=100e6)
    first, *_, last = bucket_shares(load_config(BIG), COUNTS)
    # Only the last part is visible if the link is fast,
    exchange, seconds = exchange_and_step(sent, Link(1e9), 2, 12.0)
    assert exchange == pytest.approx(100e6 / GBIT, rel=1e-3)
    assert seconds == pytest.approx(12.0 + last * 100e6 / GBIT, rel=1e-3)
    # and everything after the first part is complete if it is slow.
    _, seconds = exchange_and_step(sent, Link(1e7), 2, 12.0)
    assert seconds == pytest.approx(12.0 * (1 / 3 + 2 / 3 * first) + 100e8 / GBIT, rel=1e-3)


def test_rows_are_sent_from_start_of_backward() -> None:
    sent = Traffic(negatives=40e6, targets=10e6)
    _, seconds = exchange_and_step(sent, Link(1e9), 2, compute=3.0)
    assert seconds == pytest.approx(3.0, rel=1e-3)
    _, seconds = exchange_and_step(sent, Link(1e8), 2, compute=3.0)
    assert seconds == pytest.approx(1.0 + 50e7 / GBIT, rel=1e-3)


def test_ids_are_not_hidden() -> None:
    _, seconds = exchange_and_step(Traffic(ids=50e6), Link(1e9), 2, compute=3.0)
    assert seconds == pytest.approx(3.0 + 50e6 / GBIT, rel=1e-3)


def test_other_stages_hide_nothing() -> None:
    stage = "deepspeed.zero_optimization.stage=2"
    _, seconds = exchange_and_step(Traffic(dense=50e6, weights=25e6), Link(1e9), 2, 3.0, stage)
    assert seconds == pytest.approx(3.0 + 75e6 / GBIT, rel=1e-3)


def test_machine_sends_what_one_rank_sends() -> None:
    sent = Traffic(negatives=50e6)
    alone, shared = (
        exchange_and_step(sent, Link(1e9, ranks_per_machine=each), 8, 1.0)[0] for each in (1, 4)
    )
    assert shared == pytest.approx(alone, rel=1e-2)
    assert exchange_and_step(sent, Link(1e9, ranks_per_machine=8), 8, 1.0)[0] == 0.0
    local = Link(1e9, ranks_per_machine=8, local_bytes_per_second=1e9)
    assert exchange_and_step(sent, local, 8, 1.0)[0] == pytest.approx(0.05, rel=0.1)


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
