from __future__ import annotations

import pytest

from bilm.commands.plan import TextSize, make_plan
from bilm.commands.plan_gpu import find_gpu
from bilm.commands.plan_scaling import ScalingFlags, format_scaling, format_traffic
from bilm.errors import ConfigError
from bilm.training.config import load_config
from tests.conftest import ROOT
from tests.own_process import run_module

TEXT = TextSize.assumed(793_471, 10**9)


def rows_of(table: str) -> dict[str, list[str]]:
    """Return the cells of each line that starts with a number, by that number."""
    lines = (line.split() for line in table.splitlines())
    return {cells[0]: cells for cells in lines if cells and cells[0].isdigit()}


@pytest.mark.parametrize("ranks", ["", "0", "8,", "8;16", "-2", "8,x", "1.5", "08"])
def test_rejects_other_ranks(ranks: str) -> None:
    with pytest.raises(ConfigError, match=r"--ranks is .* such as 8 or 8,16,32"):
        ScalingFlags(ranks, None, None, None).planned_ranks()


def test_rejects_ranks_that_cannot_share_rows() -> None:
    config = load_config(ROOT / "configs" / "big.json")
    ranks = ScalingFlags("8,7", None, None, None).planned_ranks()
    with pytest.raises(ConfigError, match=r"train_batch_size is 384; .* multiple of 7 \(7 ranks"):
        make_plan(config, TEXT, ranks=ranks)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (ScalingFlags(None, "1Gbit", None, None), "pass its measured --words-per-second, or --gpu"),
        (ScalingFlags(None, "1Gbit", 0, 100.0), "--ranks-per-machine is 0; it must be at least 1"),
        (ScalingFlags(None, None, 8, 100.0), "no effect without --link"),
        (ScalingFlags(None, "fast", None, 100.0), "--link is 'fast'"),
    ],
)
def test_rejects_other_links(flags: ScalingFlags, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        flags.make_link(None)


def test_lists_bytes_by_kind() -> None:
    config = load_config(ROOT / "configs" / "big.json")
    table = rows_of(format_traffic(make_plan(config, TEXT, ranks=(2, 96)), (2, 96)))
    assert list(table) == ["2", "96"]
    assert table["2"][1:3] == ["374.4", "MB"]
    assert "weights" in format_traffic(make_plan(config, TEXT), (2,))


def test_lists_machines() -> None:
    config, gpu = load_config(ROOT / "configs" / "big.json"), find_gpu("a100")
    flags = ScalingFlags(None, "100Gbit", 8, None)
    link = flags.make_link(gpu)
    assert link is not None
    text = format_scaling(make_plan(config, TEXT), link, flags, gpu)
    table = rows_of(text)
    assert list(table) == ["1", "2", "4", "8", "16", "32", "64"]
    assert [row[1] for row in table.values()] == [str(8 * int(name)) for name in table]
    assert "100%" in table["1"]
    assert "divided" not in table["16"]
    assert "divided" in table["32"]
    assert "estimates" in text
    assert "ranks are useful for 384 rows" in text


def test_page_shows_estimates() -> None:
    config = load_config(ROOT / "configs" / "big.json", ["train.precision=tf32"])
    flags, gpu = ScalingFlags(None, "400Gbit", 8, None), find_gpu("a100")
    link = flags.make_link(gpu)
    assert link is not None
    plan = make_plan(config, TextSize.assumed(793_471, 768_648_884))
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    assert format_scaling(plan, link, flags, gpu) in page


def test_command_prints_scaling() -> None:
    size = ("--vocabulary-size", "1000", "--words", "100000", "--words-per-second", "1000")
    flags = ("--ranks", "1,4,8", "--link", "1Gbit")
    completed = run_module("bilm", "plan", "--config", "small", *size, *flags)
    assert completed.returncode == 0, completed.stderr
    assert "Scaling on links of 1 Gbit/s per machine, 1 rank per machine" in completed.stdout
    assert "Sent by a rank per step" in completed.stdout
