"""Read and write safetensors files.

Reading checks everything: only regular files are opened, and every defect of a file raises the
caller's error type, with the path. A full disk raises OSError while writing.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bilm.errors import BilmError, CheckpointError
from bilm.files.reading import open_regular

_METADATA = {"format": "pt"}  # other programs expect it; readers here do not

_DTYPES = {"int64": "I64", "float32": "F32", "float16": "F16", "uint8": "U8"}

_DISK_FULL = ("No space left", "File too large", "quota")


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write named tensors to `path`."""
    try:
        save_file(dict(tensors), path, metadata=_METADATA)
    except SafetensorError as error:  # this type hides the operating system's error number
        is_full = any(words in str(error) for words in _DISK_FULL)
        raise OSError(errno.ENOSPC if is_full else errno.EIO, str(error), str(path)) from None


def save_pieces(tensors: Mapping[str, Sequence[npt.NDArray[Any]]], path: Path) -> None:
    """Write tensors, each given as arrays to concatenate along the first axis.

    The arrays are written one after another, without a copy of all of them in memory.
    """
    header: dict[str, Any] = {"__metadata__": _METADATA}
    # The widest type first, so that every tensor is aligned.
    ordered = sorted(tensors.items(), key=lambda item: -item[1][0].itemsize)
    end = 0
    for name, pieces in ordered:
        start, end = end, end + sum(piece.nbytes for piece in pieces)
        header[name] = {
            "dtype": _DTYPES[pieces[0].dtype.name],
            "shape": [sum(map(len, pieces)), *pieces[0].shape[1:]],
            "data_offsets": [start, end],
        }
    text = json.dumps(header).encode("ascii")
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, pieces in ordered:
            for piece in pieces:
                file.write(np.ascontiguousarray(piece).data)


def load_tensors(path: Path, error: type[BilmError] = CheckpointError) -> dict[str, Tensor]:
    """Return all tensors of the file at `path` by name."""
    with TensorFile(path, error) as file:
        return {name: file.tensor(name) for name in sorted(file.names)}


class TensorFile:
    """A safetensors file that is open for reading; each tensor is read on request.

    Args:
        path: the file. A pipe or a device is rejected without waiting for it.
        error: the type of all errors.
    """

    def __init__(self, path: Path, error: type[BilmError] = CheckpointError) -> None:
        self.path = path
        self._error = error
        open_regular(path, error).close()
        with self._checked():
            file: Any = safe_open(path, framework="pt")
            self.names: frozenset[str] = frozenset(file.keys())
            self._file = file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.__exit__(None, None, None)

    def dtype_and_shape(self, name: str) -> tuple[str, tuple[int, ...]]:
        """Return the type, such as "F32", and the shape of a tensor, without reading its data."""
        with self._checked():
            described = self._file.get_slice(name)
            return described.get_dtype(), tuple(described.get_shape())

    def tensor(self, name: str) -> Tensor:
        """Return one tensor."""
        if name not in self.names:
            raise self._error(f"{self.path} has no tensor {name!r}")
        with self._checked():
            tensor: Tensor = self._file.get_tensor(name)
            return tensor

    @contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except (SafetensorError, OSError, AttributeError, TypeError) as e:  # or an unknown dtype
            raise self._error(f"{self.path} is not an intact safetensors file: {e}") from None
