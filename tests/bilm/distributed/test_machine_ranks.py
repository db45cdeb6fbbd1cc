"""Tests of bilm/distributed/machine_ranks.py; tests/launch/test_elastic.py runs it."""

from __future__ import annotations

import json

import pytest

from bilm.distributed.machine_ranks import MachineRanks, combine_exit_codes


@pytest.mark.parametrize(
    ("codes", "combined"),
    [
        ([0, 0], 0),
        ([75, 0], 75),
        ([75, 75], 75),
        ([4, -9], 4),
        ([0, 255], 4),  # ssh has failed
        ([75, -15], 4),
        ([4, 2], 2),
        ([2, 3, 4], 3),
        ([1, 2, -9], 1),
    ],
)
def test_combines_exit_codes(codes: list[int], combined: int) -> None:
    assert combine_exit_codes(codes) == combined


def test_variables_of_a_rank() -> None:
    job = MachineRanks(2, 2, 4, "node-1", 12345, ("--config", "big"), {"OMP_NUM_THREADS": "3"})
    assert json.loads(job.to_line())["arguments"] == ["--config", "big"]
    variables = job.variables(1)
    assert variables["OMP_NUM_THREADS"] == "3"
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    assert [variables[name] for name in names] == ["3", "4", "1", "2", "node-1", "12345"]
