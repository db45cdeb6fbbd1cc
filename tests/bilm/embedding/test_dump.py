"""Parts of a dump, joining them, and every state that a killed process can leave."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from bilm.embedding import dump as embedding_dump
from bilm.embedding.dump import EmbeddingDump, open_dump, partial_directory
from bilm.embedding.vector_file import Line
from bilm.errors import OutputError

RUN = {"model": "m", "input": "i", "layers": "all"}


def arrays_of(start: int, stop: int, dtype: str = "float32") -> list[np.ndarray]:
    """Return arrays of lines in which line i has i % 4 words."""
    rng = np.random.default_rng(start)
    return [rng.normal(size=(3, i % 4, 6)).astype(dtype) for i in range(start, stop)]


def add(dump: EmbeddingDump, arrays: list[np.ndarray]) -> None:
    """Write the next part: arrays, and lines of as many words."""
    lines = [Line(f"é {'w ' * array.shape[1]}", ["w"] * array.shape[1]) for array in arrays]
    dump.write(len(dump.finished), arrays, lines)


def check_complete(output: Path, expected: list[np.ndarray]) -> None:
    with h5py.File(output) as file:
        assert set(file) == {"sentence_to_index", *(str(i) for i in range(len(expected)))}
        for i, array in enumerate(expected):
            assert file[str(i)].dtype == array.dtype
            np.testing.assert_array_equal(file[str(i)][()], array)
            assert file[str(i)].attrs["tokens"].split() == ["w"] * array.shape[1]
        assert json.loads(file.attrs["bilm"]) == RUN
    assert not partial_directory(output).exists()
    assert [p.name for p in output.parent.iterdir()] == [output.name]


@pytest.mark.parametrize("compression", [None, "gzip", "lzf"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_writes_without_interruption(tmp_path: Path, compression: str | None, dtype: str) -> None:
    output = tmp_path / "out.hdf5"
    parts = [arrays_of(0, 5, dtype), arrays_of(5, 6, dtype), [np.zeros((3, 0, 6), dtype)]]
    with open_dump(output, RUN, False) as dump:
        assert dump is not None
        for part in parts:
            add(dump, part)
        assert dump.num_lines == 7
        assert not output.exists()
        dump.finish(compression)
    check_complete(output, [array for part in parts for array in part])


def test_resumes_after_the_last_complete_part(tmp_path: Path) -> None:
    output = tmp_path / "out.hdf5"
    with open_dump(output, RUN, False) as dump:
        assert dump is not None
        add(dump, arrays_of(0, 5))
        add(dump, arrays_of(5, 9))
    directory = partial_directory(output)
    (directory / ".part-00000002.safetensors.abc").write_bytes(b"half a part")
    (directory / ".joined.hdf5.abc").write_bytes(b"half a file")
    with open_dump(output, RUN, False) as dump:
        assert dump is not None
        assert (dump.finished, dump.is_joined) == ({0: 5, 1: 4}, False)
        assert not list(directory.glob(".*"))
        add(dump, arrays_of(9, 10))
        dump.finish(None)
    check_complete(output, [*arrays_of(0, 5), *arrays_of(5, 9), *arrays_of(9, 10)])


class Killed(BaseException):
    pass


@pytest.mark.parametrize("moment", ["before renaming", "after renaming", "while removing parts"])
def test_resumes_after_a_kill_near_the_end(
    tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out.hdf5"
    replace = os.replace

    def killed_replace(source: Any, target: Any) -> None:
        if Path(target) == output and moment == "before renaming":
            raise Killed
        replace(source, target)
        if Path(target) == output and moment == "after renaming":
            raise Killed

    def killed_clear(directory: Path, everything: bool) -> None:
        if output.exists() and moment == "while removing parts":
            (directory / "part-00000000.safetensors").unlink()
            raise Killed
        clear(directory, everything)

    clear = embedding_dump._clear
    monkeypatch.setattr(embedding_dump.os, "replace", killed_replace)
    monkeypatch.setattr(embedding_dump, "_clear", killed_clear)
    with suppress(Killed), open_dump(output, RUN, False) as dump:
        assert dump is not None
        add(dump, arrays_of(0, 5))
        add(dump, arrays_of(5, 6))
        dump.finish(None)
    monkeypatch.undo()
    assert partial_directory(output).exists()
    with open_dump(output, RUN, False) as dump:
        if moment == "before renaming":
            assert dump is not None
            assert dump.is_joined
            dump.finish(None)
        else:
            assert dump is None
    check_complete(output, [*arrays_of(0, 5), *arrays_of(5, 6)])


def unfinished(output: Path) -> None:
    with open_dump(output, RUN, False) as dump:
        assert dump is not None
        add(dump, arrays_of(0, 5))


def test_rejects_or_replaces_another_run(tmp_path: Path) -> None:
    output = tmp_path / "out.hdf5"
    unfinished(output)
    other = {**RUN, "layers": "top"}
    with (
        pytest.raises(OutputError, match="layers: all before, top now"),
        open_dump(output, other, False),
    ):
        pass
    with open_dump(output, other, True) as dump:
        assert dump is not None
        assert dump.num_lines == 0


def test_keeps_existing_file_until_the_new_one_is_complete(tmp_path: Path) -> None:
    output = tmp_path / "out.hdf5"
    output.write_text("mine")
    with pytest.raises(OutputError, match="already exists"), open_dump(output, RUN, False):
        pass
    with open_dump(output, RUN, True) as dump:
        assert dump is not None
        add(dump, arrays_of(0, 5))
    assert output.read_text() == "mine"
    with pytest.raises(OutputError, match="--overwrite"), open_dump(output, RUN, False):
        pass
    with open_dump(output, RUN, True) as dump:
        assert dump is not None
        assert dump.num_lines == 5
        dump.finish(None)
    check_complete(output, arrays_of(0, 5))


def test_keeps_output_whose_directory_was_removed_in_part(tmp_path: Path) -> None:
    output = tmp_path / "out.hdf5"
    output.write_text("finished")
    directory = partial_directory(output)
    directory.mkdir()
    (directory / "part-00000000.safetensors").write_bytes(b"")
    with pytest.raises(OutputError, match="already exists"), open_dump(output, RUN, False):
        pass
    assert output.read_text() == "finished"
    assert not directory.exists()


def test_rejects_second_process_damaged_part_and_directory(tmp_path: Path) -> None:
    output = tmp_path / "out.hdf5"
    with (
        open_dump(output, RUN, False),
        pytest.raises(OutputError, match="another process"),
        open_dump(output, RUN, False),
    ):
        pass
    unfinished(output)
    part = partial_directory(output) / "part-00000000.safetensors"
    part.write_bytes(part.read_bytes()[:40])
    with pytest.raises(OutputError, match="damaged"), open_dump(output, RUN, False):
        pass
    with pytest.raises(OutputError, match="is a directory"), open_dump(tmp_path, RUN, True):
        pass


def test_keeps_unrelated_files(tmp_path: Path) -> None:
    output = tmp_path / "out.hdf5"
    partial_directory(output).mkdir()
    mine = partial_directory(output) / "notes.txt"
    mine.write_text("mine")
    with open_dump(output, RUN, False) as dump:
        assert dump is not None
        add(dump, arrays_of(0, 1))
        dump.finish(None)
    assert output.exists()
    assert mine.read_text() == "mine"


def test_counts_lines_in_parts(tmp_path: Path) -> None:
    unfinished(tmp_path / "out.hdf5")
    dump = EmbeddingDump(tmp_path / "out.hdf5", RUN)
    assert dump.num_lines == 5


def test_rejects_symbolic_links(tmp_path: Path) -> None:
    output = tmp_path / "out.hdf5"
    partial_directory(output).symlink_to(tmp_path)
    with pytest.raises(OutputError, match="is a symbolic link"), open_dump(output, RUN, True):
        pass
    partial_directory(output).unlink()
    partial_directory(output).mkdir()
    (partial_directory(output) / "lock").symlink_to(tmp_path / "made")
    with pytest.raises(OutputError, match="cannot write"), open_dump(output, RUN, True):
        pass
    assert not (tmp_path / "made").exists()


def finish(output: Path) -> None:
    with open_dump(output, RUN, False) as dump:
        assert dump is not None
        dump.finish(None)


@pytest.mark.parametrize(
    "shapes",
    [
        torch.tensor(3),
        torch.tensor([[-1, -6]]),
        torch.tensor([[1 << 40, 1 << 40]]),
        torch.tensor([[2.0, 3.0]]),
        torch.tensor([[1, 2], [3, 2]]),
        torch.tensor([[2, 3]]).to(torch.bfloat16),
    ],
)
def test_rejects_part_with_wrong_shapes(tmp_path: Path, shapes: torch.Tensor) -> None:
    output = tmp_path / "out.hdf5"
    unfinished(output)
    part = partial_directory(output) / "part-00000000.safetensors"
    lines = torch.frombuffer(bytearray(b'[["a", "a"]]'), dtype=torch.uint8)
    save_file({"shapes": shapes, "values": torch.zeros(6), "lines": lines}, part)
    with pytest.raises(OutputError, match="is damaged"):
        finish(output)
    assert not output.exists()


def test_rejects_incomplete_header(tmp_path: Path) -> None:
    output = tmp_path / "out.hdf5"
    unfinished(output)
    output.write_text("mine")
    (partial_directory(output) / "run.json").write_text(json.dumps({"run": RUN}))
    with pytest.raises(OutputError, match="use --overwrite"), open_dump(output, RUN, False):
        pass
    assert output.read_text() == "mine"


@pytest.mark.parametrize("lines", [b"", b"[", b"[1]", b"[[]]", b'[["a"], ["b"]]', b"\xff"])
def test_rejects_part_with_wrong_lines(tmp_path: Path, lines: bytes) -> None:
    output = tmp_path / "out.hdf5"
    unfinished(output)
    part = partial_directory(output) / "part-00000000.safetensors"
    tensors = {"shapes": torch.tensor([[2, 3]]), "values": torch.zeros(6)}
    if lines:  # otherwise as in an earlier version
        tensors["lines"] = torch.frombuffer(bytearray(lines), dtype=torch.uint8)
    save_file(tensors, part)
    with pytest.raises(OutputError, match="is damaged"):
        finish(output)
    assert not output.exists()


def test_rejects_unfinished_output_of_an_earlier_version(tmp_path: Path) -> None:
    output = tmp_path / "out.hdf5"
    unfinished(output)
    header = {"format": "bilm-embeddings", "version": 1, "run": RUN, "replaces": False}
    (partial_directory(output) / "run.json").write_text(json.dumps(header))
    with (
        pytest.raises(OutputError, match="version: 1 before, 2 now"),
        open_dump(output, RUN, False),
    ):
        pass
