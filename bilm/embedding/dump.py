"""Write the arrays of any number of lines to one HDF5 file; `kill -9` loses at most one part.

`vector_file.py` describes the file. An HDF5 file is lost if the process is killed while writing it,
so it is written only at the end. Until then, `OUTPUT.partial/` contains parts: safetensors files of
a few hundred lines, each renamed into place when it is complete. A resumed run writes the parts
that are missing, which need not be the last ones if several ranks write (`shared_dump.py`). At the
end, the parts are joined into one HDF5 file, which is renamed to OUTPUT.

Cost: the arrays are written twice, the second time as fast as the disk and HDF5 allow, and twice
the disk space is needed until the end. If the process is killed while it joins the parts, only the
joining is repeated. Memory: one part, and the text while the parts are joined.
"""

from __future__ import annotations

import errno
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

from bilm.embedding.vector_file import Line, VectorFileWriter
from bilm.errors import OutputError
from bilm.files.strict_json import read_json
from bilm.files.writing import (
    atomic_file,
    exclusive_lock,
    is_disk_full,
    reject_existing,
    sync_directory,
    write_text,
)
from bilm.pretrained.tensors import TensorFile, save_tensors

FORMAT, VERSION = "bilm-embeddings", 2  # of the parts; those of version 1 have no lines

HEADER_FILE = "run.json"

JOINED_FILE = "joined.hdf5"

LOCK_FILE = "lock"  # of rank 0; that of rank 1 is "lock-1"

LOCKED_MESSAGE = "another process is writing {}; wait until it has finished"

PART_FILES = "part-" + "[0-9]" * 8 + ".safetensors"

MAX_DATASET_OVERHEAD_BYTES = 1024  # of HDF5, per dataset

_MAX_HEADER_BYTES = 1 << 12


class EmbeddingDump:
    """The unfinished dump at `output`. Use `open_dump`, which locks out other processes.

    `finished` is the number of lines of each finished part, by its number; by default, it is read
    from the parts.
    """

    def __init__(
        self, output: Path, run: dict[str, Any], finished: dict[int, int] | None = None
    ) -> None:
        self.output = output
        self.directory = partial_directory(output)
        self.run = run
        self.finished = self._find_parts() if finished is None else finished

    @property
    def is_joined(self) -> bool:
        """Whether the joined file is complete and only has to be renamed."""
        joined = self.directory / JOINED_FILE
        return joined.is_file() and not joined.is_symlink()

    @property
    def num_lines(self) -> int:
        """The number of lines in the finished parts."""
        return sum(self.finished.values())

    def write(self, number: int, arrays: Sequence[npt.NDArray[Any]], lines: Sequence[Line]) -> None:
        """Write a part to disk: lines and their arrays."""
        text = json.dumps([[line.text, *line.words] for line in lines], ensure_ascii=False)
        tensors = {
            "lines": torch.frombuffer(bytearray(text.encode("utf-8")), dtype=torch.uint8),
            "shapes": torch.tensor([array.shape for array in arrays], dtype=torch.int64),
            "values": torch.from_numpy(np.concatenate([array.reshape(-1) for array in arrays])),
        }
        needed = sum(tensor.nbytes for tensor in tensors.values())
        with (
            _output_errors(self.output, needed),
            atomic_file(self._part(number)) as temporary,
        ):
            save_tensors(tensors, temporary)
        self.finished[number] = len(lines)

    def finish(self, compression: str | None) -> None:
        """Join the parts and rename the file to `output`."""
        joined = self.directory / JOINED_FILE
        if not self.is_joined:
            sizes = [self._part(part).stat().st_size for part in self.finished]
            needed = sum(sizes) + MAX_DATASET_OVERHEAD_BYTES * self.num_lines + (1 << 20)
            with _output_errors(self.output, needed), atomic_file(joined) as temporary:
                _check_space(joined, needed)
                self._join(temporary, compression)
        os.replace(joined, self.output)
        sync_directory(self.output.parent)
        _remove(self.directory)

    def _join(self, path: Path, compression: str | None) -> None:
        with h5py.File(path, "w") as file:
            writer = VectorFileWriter(file, self.run, compression)
            for part in range(len(self.finished)):
                values = self._read(part, "values")
                shapes = self._shapes(part).tolist()
                lines = self._lines(part)
                if (
                    values.ndim != 1
                    or sum(math.prod(shape) for shape in shapes) != len(values)
                    or len(lines) != len(shapes)
                ):
                    raise self._damaged(part, 'its "shapes", "values" and "lines" do not match')
                start = 0
                for shape, line in zip(shapes, lines, strict=True):
                    size = math.prod(shape)
                    writer.add(values[start : start + size].reshape(shape), line)
                    start += size
            writer.finish()

    def _find_parts(self) -> dict[int, int]:
        numbers = sorted(
            int(path.stem.removeprefix("part-")) for path in self.directory.glob(PART_FILES)
        )
        return {number: len(self._shapes(number)) for number in numbers}

    def _part(self, number: int) -> Path:
        return self.directory / f"part-{number:08d}.safetensors"

    def _shapes(self, number: int) -> npt.NDArray[Any]:
        shapes = self._read(number, "shapes")
        if shapes.ndim != 2 or shapes.dtype != np.int64 or (shapes < 0).any():
            raise self._damaged(number, 'its "shapes" array is invalid')
        return shapes

    def _lines(self, number: int) -> list[Line]:
        try:
            lines = json.loads(self._read(number, "lines").tobytes())
            return [Line(text, words) for text, *words in lines]
        except (ValueError, TypeError) as e:
            raise self._damaged(number, f'its "lines" are invalid: {e}') from None

    def _read(self, number: int, name: str) -> npt.NDArray[Any]:
        try:
            with TensorFile(self._part(number), OutputError) as file:
                array: npt.NDArray[Any] = file.tensor(name).numpy()
                return array
        except (OutputError, TypeError) as e:  # TypeError: numpy lacks some types
            raise self._damaged(number, str(e)) from None

    def _damaged(self, number: int, reason: str) -> OutputError:
        return OutputError(
            f"{self._part(number)} is damaged: {reason}; remove {self.directory} and start again"
        )


def _check_space(path: Path, size: int) -> None:
    """Fail if there is no space for `size` bytes, because HDF5 crashes on a full disk."""
    if not hasattr(os, "posix_fallocate"):  # macOS
        if shutil.disk_usage(path.parent).free < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return
    with tempfile.TemporaryFile(dir=path.parent) as file:
        os.posix_fallocate(file.fileno(), 0, size)


def partial_directory(output: Path) -> Path:
    """Return the directory of the parts of an unfinished dump."""
    return output.with_name(output.name + ".partial")


@contextmanager
def open_dump(output: Path, run: dict[str, Any], overwrite: bool) -> Iterator[EmbeddingDump | None]:
    """Open the dump at `output`, new or resumed; yield None if it is already finished.

    `run` describes everything that determines the numbers. An unfinished dump with another `run`
    and an existing `output` are rejected, unless `overwrite` is set.
    """
    directory = partial_directory(output)
    exists = output.exists()
    if output.is_dir():
        raise OutputError(f"{output} is a directory; pass the path of a file")
    if not directory.exists():
        reject_existing(output, OutputError, overwrite)
    if directory.is_symlink():
        raise OutputError(f"{directory} is a symbolic link; remove it, or choose another output")
    with ExitStack() as stack:
        with _output_errors(output, _MAX_HEADER_BYTES):
            output.parent.mkdir(parents=True, exist_ok=True)
            directory.mkdir(exist_ok=True)
            message = LOCKED_MESSAGE.format(output)
            stack.enter_context(exclusive_lock(directory / LOCK_FILE, OutputError, message))
            for lock in directory.glob(f"{LOCK_FILE}-*"):  # of ranks that may outlive their rank 0
                with exclusive_lock(lock, OutputError, message):
                    lock.unlink()
        header = {"format": FORMAT, "version": VERSION, "run": run, "replaces": exists}
        if not _is_same_run(directory, header, overwrite):
            if exists and not overwrite:  # a finished run was killed while it removed its directory
                _remove(directory)
                reject_existing(output, OutputError)
            _clear(directory, everything=True)
            with _output_errors(output, _MAX_HEADER_BYTES):
                write_text(directory / HEADER_FILE, json.dumps(header, indent=2) + "\n")
        elif exists and not overwrite:
            if read_json(directory / HEADER_FILE, OutputError).get("replaces") is not False:
                reject_existing(output, OutputError)
            # The output did not exist when this run began, so the run was killed after writing it.
            _remove(directory)
            yield None
            return
        else:
            _clear(directory, everything=False)
        yield EmbeddingDump(output, run)


def _is_same_run(directory: Path, header: dict[str, Any], overwrite: bool) -> bool:
    """Return whether there is an unfinished dump to resume; one of another run is rejected."""
    path = directory / HEADER_FILE
    if not path.exists():
        return False
    before = read_json(path, OutputError)
    old = before.get("run") if isinstance(before, dict) else None
    if not isinstance(before, dict) or not isinstance(old, dict):
        before, old = {}, {}
    old = {"version": before.get("version"), **old}
    new = {"version": header["version"], **header["run"]}
    differing = [
        f"{key}: {old.get(key)} before, {new.get(key)} now"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]
    if differing and not overwrite:
        raise OutputError(
            f"{directory} is the unfinished output of a run with different settings:\n  "
            + "\n  ".join(differing)
            + "\nRestore these settings to resume it, or use --overwrite to start again"
        )
    return not differing


def _clear(directory: Path, everything: bool) -> None:
    """Remove temporary files of killed runs; with `everything`, the whole dump, header first."""
    names = [HEADER_FILE, "part-*.safetensors", JOINED_FILE] if everything else []
    for pattern in [*names, ".part-*", f".{JOINED_FILE}.*", f".{HEADER_FILE}.*"]:
        for path in directory.glob(pattern):
            path.unlink()


def _remove(directory: Path) -> None:
    """Remove the dump, and the directory unless it contains other files."""
    _clear(directory, everything=True)
    for lock in [directory / LOCK_FILE, *directory.glob(f"{LOCK_FILE}-*")]:
        lock.unlink(missing_ok=True)
    with suppress(OSError):
        directory.rmdir()


@contextmanager
def _output_errors(output: Path, needed: int) -> Iterator[None]:
    """Translate a full disk, or a directory without write permission, into an OutputError."""
    try:
        yield
    except OSError as e:
        if not is_disk_full(e):
            raise OutputError(f"cannot write {output}: {e.strerror or e}") from None
        free = shutil.disk_usage(output.parent).free
        raise OutputError(
            f"no space left while writing {output}: at least {needed:,} bytes are needed and "
            f"{free:,} are free; the finished parts are kept in {partial_directory(output)}. Free "
            "some space and run the same command again"
        ) from None
