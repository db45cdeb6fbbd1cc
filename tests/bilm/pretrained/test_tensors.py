from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from bilm.errors import CheckpointError, OutputError
from bilm.pretrained import tensors as tensors_module
from bilm.pretrained.tensors import TensorFile, load_tensors, save_pieces, save_tensors

TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([1, 2])}


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_tensors(TENSORS, path)
    found = load_tensors(path)
    assert found.keys() == TENSORS.keys()
    assert all(torch.equal(found[name], TENSORS[name]) for name in TENSORS)
    with TensorFile(path) as file:
        assert file.names == {"a", "b"}
        assert file.dtype_and_shape("a") == ("F32", (2, 3))
        assert file.dtype_and_shape("b") == ("I64", (2,))
        assert torch.equal(file.tensor("b"), TENSORS["b"])
        with pytest.raises(CheckpointError, match=r"x\.safetensors has no tensor 'c'"):
            file.tensor("c")
        with pytest.raises(CheckpointError, match="not an intact"):
            file.dtype_and_shape("c")


def test_files_have_the_format_metadata_and_old_ones_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_tensors(TENSORS, path)
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
    save_file(TENSORS, path)  # as before, without metadata
    assert load_tensors(path).keys() == TENSORS.keys()


@pytest.mark.parametrize("data", [b"", b"\x80\x04\x95pickle", b"\xff" * 7 + b"\x7f{"])
def test_rejects_files_that_are_not_safetensors(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    with pytest.raises(OutputError, match=r"x\.safetensors is not an intact safetensors file"):
        TensorFile(path, OutputError)


def test_rejects_truncated_missing_and_irregular_files(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_tensors(TENSORS, path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="not an intact"):
        load_tensors(path)
    with pytest.raises(CheckpointError, match="No such file"):
        load_tensors(tmp_path / "missing")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="not a regular file"):
        load_tensors(tmp_path / "pipe")


@pytest.mark.parametrize(
    ("message", "number"),
    [("No space left on device (os error 28)", errno.ENOSPC), ("broken", errno.EIO)],
)
def test_failed_write_raises_os_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: str, number: int
) -> None:
    def fail(tensors: object, path: object, metadata: object) -> None:
        raise tensors_module.SafetensorError(message)

    monkeypatch.setattr(tensors_module, "save_file", fail)
    with pytest.raises(OSError, match=re.escape(message)) as error:
        save_tensors(TENSORS, tmp_path / "x.safetensors")
    assert error.value.errno == number


def test_writes_pieces_as_one_tensor(tmp_path: Path) -> None:
    path = tmp_path / "pieces.safetensors"
    pieces: dict[str, list[np.ndarray]] = {
        "bytes": [np.frombuffer(b"abc", np.uint8)],
        "half": [np.arange(3, dtype=np.float16), np.arange(0, dtype=np.float16)],
        "rows": [np.arange(6).reshape(2, 3), np.arange(6).reshape(3, 2).T[:1]],
        "empty": [np.zeros((0, 4), np.float32)],
    }
    save_pieces(pieces, path)
    tensors = load_file(path)
    assert tensors.keys() == pieces.keys()
    for name, arrays in pieces.items():
        expected = np.concatenate(arrays)
        assert tensors[name].numpy().dtype == expected.dtype
        np.testing.assert_array_equal(tensors[name].numpy(), expected)
