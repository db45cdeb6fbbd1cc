"""Joining parts before the last one is written, and the faults that may occur meanwhile."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from bilm.embedding import joined_file
from bilm.embedding.dump import EmbeddingDump, open_dump, partial_directory
from bilm.embedding.part_files import PartFile
from bilm.embedding.vector_file import Line
from bilm.errors import OutputError

RUN = {"model": "m"}


def write(dump: EmbeddingDump, number: int) -> None:
    rng = np.random.default_rng(number)
    arrays = [rng.normal(size=(3, n, 6)).astype(np.float32) for n in (3, 0, 2)]
    dump.write(number, arrays, [Line(f"line {number}", ["w"] * a.shape[1]) for a in arrays])


def incomplete_files(output: Path) -> list[Path]:
    return list(partial_directory(output).glob(".joined*"))


def contents(output: Path) -> dict[str, Any]:
    with h5py.File(output) as file:
        index = file["sentence_to_index"][0]
        datasets = {name: file[name] for name in file if name != "sentence_to_index"}
        return {
            "sentence_to_index": index,
            **{name: (d.shape, d[()].tobytes(), dict(d.attrs)) for name, d in datasets.items()},
        }


def finished_at_once(directory: Path) -> dict[str, Any]:
    output = directory / "at_once.hdf5"
    with open_dump(output, RUN, False) as dump:
        assert dump is not None
        for number in range(4):
            write(dump, number)
        dump.finish(None)
    return contents(output)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that receives the name of each part that is read."""
    names: list[str] = []
    contents = PartFile.contents

    def counted(part: PartFile) -> Any:
        names.append(part.path.name)
        return contents(part)

    monkeypatch.setattr(PartFile, "contents", counted)
    return names


def test_reads_each_part_once_and_writes_the_same_file(tmp_path: Path, reads: list[str]) -> None:
    expected = finished_at_once(tmp_path)
    reads.clear()
    output = tmp_path / "out.hdf5"
    with open_dump(output, RUN, False) as dump:
        assert dump is not None
        for number in range(4):
            write(dump, number)
            dump.join_ahead(number, None)
        assert len(reads) == 3
        dump.finish(None)
    assert reads == [f"part-{number:08d}.safetensors" for number in range(4)]
    assert contents(output) == expected
    assert not partial_directory(output).exists()


def test_removes_incomplete_file_when_interrupted(tmp_path: Path) -> None:
    expected = finished_at_once(tmp_path)
    output = tmp_path / "out.hdf5"
    with suppress(KeyboardInterrupt), open_dump(output, RUN, False) as dump:
        assert dump is not None
        for number in range(3):
            write(dump, number)
        dump.join_ahead(2, None)
        assert len(incomplete_files(output)) == 1
        raise KeyboardInterrupt
    assert incomplete_files(output) == []
    with open_dump(output, RUN, False) as dump:
        assert dump is not None
        write(dump, 3)
        dump.finish(None)
    assert contents(output) == expected


def test_joins_all_parts_at_the_end_after_a_failure(tmp_path: Path) -> None:
    expected = finished_at_once(tmp_path)
    output = tmp_path / "out.hdf5"
    with open_dump(output, RUN, False) as dump:
        assert dump is not None
        write(dump, 0)
        dump.join_ahead(2, None)  # part 1 does not exist
        assert incomplete_files(output) == []
        for number in range(1, 4):
            write(dump, number)
            dump.join_ahead(number, None)  # not tried again
        assert incomplete_files(output) == []
        dump.finish(None)
    assert contents(output) == expected


def test_gives_its_space_to_parts_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = finished_at_once(tmp_path)
    output = tmp_path / "out.hdf5"
    write_part = PartFile.write

    def write_if_space(part: PartFile, arrays: Sequence[Any], lines: Sequence[Line]) -> None:
        if incomplete_files(output):
            raise OSError(errno.ENOSPC, "No space left on device")
        write_part(part, arrays, lines)

    with open_dump(output, RUN, False) as dump:
        assert dump is not None
        write(dump, 0)
        dump.join_ahead(1, None)
        monkeypatch.setattr(PartFile, "write", write_if_space)
        for number in range(1, 4):
            write(dump, number)
        dump.finish(None)
    assert contents(output) == expected


def test_checks_space_for_each_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "out.hdf5"
    with open_dump(output, RUN, False) as dump:
        assert dump is not None
        write(dump, 0)
        monkeypatch.setattr(joined_file, "MAX_DATASET_OVERHEAD_BYTES", 1 << 60)
        dump.join_ahead(1, None)
        assert incomplete_files(output) == []
        with pytest.raises(OutputError, match=r"out\.hdf5: "):
            dump.finish(None)
    assert not output.exists()
