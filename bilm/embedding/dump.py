"""Write the arrays of any number of lines to one HDF5 file; `kill -9` loses at most one part.

`vector_file.py` describes the file. An HDF5 file is lost if the process is killed while writing it.
Therefore `OUTPUT.partial/` contains parts until the end: safetensors files of a few hundred lines,
each renamed into place when it is complete. A resumed run writes the parts that are missing, which
need not be the last ones if several ranks write (`shared_dump.py`). The parts are joined into one
HDF5 file, most of them while later ones are computed (`background.py`). It is renamed to OUTPUT.

Cost: the arrays are written twice, and twice the disk space is needed until the end. If the process
is killed, only the joining is repeated. Memory: one part, and the text, for its index.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy.typing as npt

from bilm.embedding.joined_file import MAX_DATASET_OVERHEAD_BYTES, JoinedFile
from bilm.embedding.part_files import PartFile
from bilm.embedding.vector_file import Line
from bilm.errors import OutputError
from bilm.files.strict_json import read_json
from bilm.files.writing import (
    exclusive_lock,
    is_disk_full,
    reject_existing,
    sync_directory,
    write_text,
)

FORMAT, VERSION = "bilm-embeddings", 2  # of the parts; those of version 1 have no lines

HEADER_FILE = "run.json"

JOINED_FILE = "joined.hdf5"

LOCK_FILE = "lock"  # of rank 0; that of rank 1 is "lock-1"

LOCKED_MESSAGE = "another process is writing {}; wait until it has finished"

PART_FILES = "part-" + "[0-9]" * 8 + ".safetensors"

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
        self._joined: JoinedFile | None = None
        self._can_join_ahead = True

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
        needed = sum(array.nbytes for array in arrays)
        try:
            with _output_errors(self.output, needed):
                self._part(number).write(arrays, lines)
        except OutputError:
            if self._joined is None:
                raise
            self.close()  # perhaps this frees enough space
            with _output_errors(self.output, needed):
                self._part(number).write(arrays, lines)
        self.finished[number] = len(lines)

    def join_ahead(self, num_parts: int, compression: str | None) -> None:
        """Join the first parts, all of which are on disk, so that `finish` has less to do.

        If this fails, for example because of a full disk, `finish` joins all parts.
        """
        if self._can_join_ahead:
            with suppress(OutputError, OSError):
                self._join(num_parts, compression)
                return
            self.close()

    def finish(self, compression: str | None) -> None:
        """Join the remaining parts and rename the file to `output`."""
        if not self.is_joined:
            sizes = [self._part(number).path.stat().st_size for number in self.finished]
            needed = sum(sizes) + MAX_DATASET_OVERHEAD_BYTES * self.num_lines
            with _output_errors(self.output, needed):
                try:
                    self._join(len(self.finished), compression).finish()
                    self._joined = None
                finally:
                    self.close()
        os.replace(self.directory / JOINED_FILE, self.output)
        sync_directory(self.output.parent)
        _remove(self.directory)

    def _join(self, num_parts: int, compression: str | None) -> JoinedFile:
        if self._joined is None:
            self._joined = JoinedFile(self.directory / JOINED_FILE, self.run, compression)
        for number in range(self._joined.num_parts, num_parts):
            self._joined.add(self._part(number))
        return self._joined

    def close(self) -> None:
        """Remove the incomplete joined file, if there is one."""
        if self._joined is not None:
            self._joined.discard()
            self._joined, self._can_join_ahead = None, False

    def _find_parts(self) -> dict[int, int]:
        numbers = sorted(
            int(path.stem.removeprefix("part-")) for path in self.directory.glob(PART_FILES)
        )
        return {number: self._part(number).num_lines() for number in numbers}

    def _part(self, number: int) -> PartFile:
        return PartFile(self.directory / f"part-{number:08d}.safetensors")


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
        dump = EmbeddingDump(output, run)
        stack.callback(dump.close)
        yield dump


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
