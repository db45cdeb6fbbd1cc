"""Tests of the choice of machines for `bilm pretrain --restarts`."""

from __future__ import annotations

import sys

import pytest

from bilm.commands import pretrain
from bilm.commands.restarts import fits, usable_of
from bilm.distributed.machines import Machine
from bilm.errors import ConfigError
from bilm.training.config import load_config

FOUR = [Machine(f"node-{number}", 2) for number in range(1, 5)]


def test_uses_as_many_machines_as_divide_the_batch() -> None:
    def divides(world: int) -> bool:
        return 32 % world == 0

    assert usable_of(FOUR, divides) == tuple(FOUR)
    assert usable_of(FOUR[1:], divides) == tuple(FOUR[1:3])
    assert usable_of(FOUR[3:], divides) == (FOUR[3],)
    with pytest.raises(ConfigError, match="cannot be divided"):
        usable_of([Machine("node-1", 3)], divides)


def test_rows_of_batch_and_evaluation_must_be_divisible() -> None:
    changes = ["deepspeed.train_batch_size=24", "train.evaluation.rows=16"]
    config = load_config("demo", changes)
    assert [world for world in range(1, 25) if fits(config, world)] == [1, 2, 4, 8]
    config = load_config("demo", [*changes, "deepspeed.gradient_accumulation_steps=3"])
    assert [world for world in range(1, 25) if fits(config, world)] == [1, 2, 4, 8]
    config = load_config("demo", [*changes, "deepspeed.gradient_accumulation_steps=4"])
    assert [world for world in range(1, 25) if fits(config, world)] == [1, 2]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--hostfile=hosts"], "needs --restarts"),
        (["--restarts=-1"], "at least 0"),
        (["--restarts=1", "--probe-seconds=0"], "above 0"),
        (["--restarts=1", "--dry-run"], "cannot be combined"),
        (["--restarts=1", "--hostfile=missing"], "cannot be read"),
    ],
)
def test_rejects_invalid_flags(
    flags: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["pretrain", "--config=demo", *flags])
    with pytest.raises(ConfigError, match=message):
        pretrain.main()


def test_rejects_restarts_in_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["pretrain", "--config=demo", "--restarts=1"])
    variables = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    for name, value in (variables | {"MASTER_ADDR": "localhost", "MASTER_PORT": "1"}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="without a launcher"):
        pretrain.main()
