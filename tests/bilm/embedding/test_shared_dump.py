"""A dump that rank 0 opens and another rank joins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bilm.embedding.dump import open_dump, partial_directory
from bilm.embedding.shared_dump import SingleProcess, open_shared_dump
from bilm.embedding.vector_file import Line
from bilm.errors import OutputError

RUN = {"model": "m", "input": "i"}
ARRAYS, LINES = [np.ones((2, 1, 4), np.float32)], [Line("a", ["a"])]


class SecondRank(SingleProcess):
    """Rank 1, which gets from rank 0 what the test passes."""

    rank, world, is_first = 1, 2, False

    def __init__(self, value: Any) -> None:
        self.value = value

    def broadcast_json(self, value: Any) -> Any:
        return self.value


def test_second_rank_writes_parts(tmp_path: Path) -> None:
    output = tmp_path / "out.hdf5"
    with open_dump(output, RUN, False) as first:
        assert first is not None
        first.write(0, ARRAYS, LINES)
        second_rank = SecondRank([RUN, [[0, 1]]])
        with open_shared_dump(output, RUN, False, second_rank) as second:
            assert second is not None
            assert second.finished == {0: 1}
            second.write(2, ARRAYS, LINES)
    with open_dump(output, RUN, False) as resumed:
        assert resumed is not None
        assert resumed.finished == {0: 1, 2: 1}
        with pytest.raises(OutputError, match=r"part-00000001\.safetensors is damaged"):
            resumed.finish(None)
        resumed.write(1, ARRAYS, LINES)
        resumed.finish(None)
    assert [path.name for path in tmp_path.iterdir()] == ["out.hdf5"]


def test_second_rank_has_nothing_to_do_after_the_last_part(tmp_path: Path) -> None:
    with open_shared_dump(tmp_path / "a", RUN, False, SecondRank([RUN, None])) as dump:
        assert dump is None
    assert not list(tmp_path.iterdir())


def test_rejects_new_run_while_a_rank_of_the_last_one_lives(tmp_path: Path) -> None:
    output = tmp_path / "out.hdf5"
    with open_dump(output, RUN, False):
        pass  # and rank 0 is killed
    with (
        open_shared_dump(output, RUN, False, SecondRank([RUN, []])),
        pytest.raises(OutputError, match="another process is writing"),
        open_dump(output, {**RUN, "input": "other"}, True),
    ):
        pass
    with open_dump(output, {**RUN, "input": "other"}, True) as dump:
        assert dump is not None


def test_rejects_rank_with_other_files(tmp_path: Path) -> None:
    output = tmp_path / "out.hdf5"
    with open_dump(output, RUN, False):
        other = {**RUN, "input": "j"}
        with (
            pytest.raises(OutputError, match=r"rank 1 has another .*\n  input: j, on rank 0 i"),
            open_shared_dump(output, other, False, SecondRank([RUN, []])),
        ):
            pass
        elsewhere = tmp_path / "elsewhere" / "out.hdf5"
        with (
            pytest.raises(OutputError, match="a file system that all machines share"),
            open_shared_dump(elsewhere, RUN, False, SecondRank([RUN, []])),
        ):
            pass
    assert sorted(path.name for path in partial_directory(output).iterdir()) == ["lock", "run.json"]
