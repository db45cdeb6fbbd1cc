"""Arrays of any number of lines into one HDF5 file, in a way that survives `kill -9`.

An HDF5 file that is killed while it is written is lost, so nothing is written to one before the
end. `OUTPUT.partial/` collects parts, each a safetensors file of some hundred lines that is renamed
into place when it is whole; a new start counts them and goes on behind the last. At the end the
parts are joined into one HDF5 file, which is renamed to OUTPUT.

Cost: the arrays are written twice, the second time as fast as the disk and HDF5 allow, and twice
the disk space is needed until the end. A kill while the parts are being joined repeats the joining
alone. Memory: one part.

The form of the file is the published one: dataset "0", "1", ... by line number from 0. What it was
made from is in the attribute `bilm`.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open

from bilm.errors import OutputError
from bilm.files.reading import open_regular
from bilm.files.strict_json import read_json
from bilm.files.writing import (
    atomic_file,
    exclusive_lock,
    is_disk_full,
    reject_existing,
    sync_directory,
    write_text,
)
from bilm.pretrained.tensors import save_tensors

FORMAT = "bilm-embeddings"

HEADER_FILE = "run.json"

JOINED_FILE = "joined.hdf5"

LOCK_FILE = "lock"

DATASET_BYTES = 1024  # what HDF5 itself needs for a dataset, and then some

_HEADER_BYTES = 1 << 12


class EmbeddingDump:
    """The unfinished dump at `output`; made by `open_dump`, which keeps other processes out."""

    def __init__(self, output: Path, run: dict[str, Any]) -> None:
        self.output = output
        self.directory = partial_directory(output)
        self.run = run
        self.num_parts = 0
        self.num_lines = 0
        while self._part(self.num_parts).exists():
            self.num_lines += len(self._shapes(self.num_parts))
            self.num_parts += 1

    @property
    def is_joined(self) -> bool:
        """Whether all is done but to put the file in its place."""
        joined = self.directory / JOINED_FILE
        return joined.is_file() and not joined.is_symlink()

    def append(self, arrays: Sequence[npt.NDArray[Any]]) -> None:
        """Add the arrays of the next lines; they are on disk when this returns."""
        tensors = {
            "shapes": torch.tensor([array.shape for array in arrays], dtype=torch.int64),
            "values": torch.from_numpy(np.concatenate([array.reshape(-1) for array in arrays])),
        }
        needed = sum(tensor.nbytes for tensor in tensors.values())
        with _full_disk(self.output, needed), atomic_file(self._part(self.num_parts)) as temporary:
            save_tensors(tensors, temporary)
        self.num_parts += 1
        self.num_lines += len(arrays)

    def finish(self, compression: str | None) -> None:
        """Join the parts, and put the file in its place."""
        joined = self.directory / JOINED_FILE
        if not self.is_joined:
            sizes = [self._part(part).stat().st_size for part in range(self.num_parts)]
            needed = sum(sizes) + DATASET_BYTES * self.num_lines + (1 << 20)
            with _full_disk(self.output, needed), atomic_file(joined) as temporary:
                _prove_space(joined, needed)
                self._join(temporary, compression)
        os.replace(joined, self.output)
        sync_directory(self.output.parent)
        _remove(self.directory)

    def _join(self, path: Path, compression: str | None) -> None:
        line = 0
        with h5py.File(path, "w") as file:
            file.attrs["bilm"] = json.dumps(self.run)
            for part in range(self.num_parts):
                values = self._read(part, "values")
                shapes = self._shapes(part).tolist()
                if values.ndim != 1 or sum(math.prod(shape) for shape in shapes) != len(values):
                    raise self._damaged(part, "its shapes and its values do not agree")
                start = 0
                for shape in shapes:
                    size = math.prod(shape)
                    array = values[start : start + size].reshape(shape)
                    # HDF5 cannot chunk, and hence not compress, an array of no words.
                    filters = {"compression": compression} if compression and size else {}
                    file.create_dataset(str(line), data=array, **filters)
                    start += size
                    line += 1

    def _part(self, number: int) -> Path:
        return self.directory / f"part-{number:08d}.safetensors"

    def _shapes(self, number: int) -> npt.NDArray[Any]:
        shapes = self._read(number, "shapes")
        if shapes.ndim != 2 or shapes.dtype != np.int64 or (shapes < 0).any():
            raise self._damaged(number, "its shapes are none")
        return shapes

    def _read(self, number: int, name: str) -> npt.NDArray[Any]:
        path = self._part(number)
        open_regular(path, OutputError).close()
        try:
            with safe_open(path, framework="np") as file:
                array: npt.NDArray[Any] = file.get_tensor(name)
                return array
        except (SafetensorError, OSError, AttributeError, TypeError) as e:  # types numpy has not
            raise self._damaged(number, str(e)) from None

    def _damaged(self, number: int, reason: str) -> OutputError:
        return OutputError(
            f"{self._part(number)} is damaged: {reason}; remove {self.directory} and begin again"
        )


def _prove_space(path: Path, size: int) -> None:
    """Fail now if there is no room for `size` bytes: HDF5 crashes when it finds out itself."""
    with tempfile.TemporaryFile(dir=path.parent) as file:
        os.posix_fallocate(file.fileno(), 0, size)


def partial_directory(output: Path) -> Path:
    """Where the parts of an unfinished dump are."""
    return output.with_name(output.name + ".partial")


@contextmanager
def open_dump(output: Path, run: dict[str, Any], overwrite: bool) -> Iterator[EmbeddingDump | None]:
    """The dump at `output`, new or to go on with; None if there is nothing left to do.

    `run` says what decides the numbers. An unfinished dump of another run is refused, and so is an
    existing `output`, unless `overwrite`.
    """
    directory = partial_directory(output)
    exists = output.exists()
    if output.is_dir():
        raise OutputError(f"{output} is a directory; name a file")
    if not directory.exists():
        reject_existing(output, OutputError, overwrite)
    if directory.is_symlink():
        raise OutputError(f"{directory} is a symbolic link; remove it, or choose another output")
    with ExitStack() as stack:
        with _full_disk(output, _HEADER_BYTES):
            output.parent.mkdir(parents=True, exist_ok=True)
            directory.mkdir(exist_ok=True)
            message = f"another process is writing {output}; wait for it"
            stack.enter_context(exclusive_lock(directory / LOCK_FILE, OutputError, message))
        header = {"format": FORMAT, "version": 1, "run": run, "replaces": exists}
        if not _is_same_run(directory, header, overwrite):
            _clear(directory, everything=True)
            with _full_disk(output, _HEADER_BYTES):
                write_text(directory / HEADER_FILE, json.dumps(header, indent=2) + "\n")
        elif exists and not overwrite:
            if read_json(directory / HEADER_FILE, OutputError).get("replaces") is not False:
                reject_existing(output, OutputError)
            # It was not there when this run began: a kill came after the very last step.
            _remove(directory)
            yield None
            return
        else:
            _clear(directory, everything=False)
        yield EmbeddingDump(output, run)


def _is_same_run(directory: Path, header: dict[str, Any], overwrite: bool) -> bool:
    """Whether an unfinished dump is there to go on with; one of another run is refused."""
    path = directory / HEADER_FILE
    if not path.exists():
        return False
    before = read_json(path, OutputError)
    old = before.get("run") if isinstance(before, dict) else None
    if not isinstance(before, dict) or not isinstance(old, dict):
        old = {}
    new = header["run"]
    differing = [
        f"{key}: {old.get(key)} then, {new.get(key)} now"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]
    if differing and not overwrite:
        raise OutputError(
            f"{directory} is the unfinished work of another run:\n  "
            + "\n  ".join(differing)
            + "\n"
            "put these back to go on with it, or say --overwrite to begin anew"
        )
    return not differing


def _clear(directory: Path, everything: bool) -> None:
    """Remove what kills have left half written, or `everything` of ours, the header first."""
    names = [HEADER_FILE, "part-*.safetensors", JOINED_FILE] if everything else []
    for pattern in [*names, ".part-*", f".{JOINED_FILE}.*", f".{HEADER_FILE}.*"]:
        for path in directory.glob(pattern):
            path.unlink()


def _remove(directory: Path) -> None:
    """Remove the directory, unless somebody keeps something else there."""
    _clear(directory, everything=True)
    (directory / LOCK_FILE).unlink(missing_ok=True)
    with suppress(OSError):
        directory.rmdir()


@contextmanager
def _full_disk(output: Path, needed: int) -> Iterator[None]:
    """Say what can be done about a full disk, or a place that cannot be written to."""
    try:
        yield
    except OSError as e:
        if not is_disk_full(e):
            raise OutputError(f"cannot write {output}: {e.strerror or e}") from None
        free = shutil.disk_usage(output.parent).free
        raise OutputError(
            f"no space left while writing {output}: at least {needed:,} bytes needed, {free:,} "
            f"bytes free; what is done so far is kept in {partial_directory(output)}: make room "
            "and run the same command again"
        ) from None
