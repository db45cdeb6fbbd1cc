"""Checkpoints of a run: atomic, with digests, in safetensors and JSON, for any number of ranks.

`checkpoints/step-00001000/` contains `weights.safetensors`, `optimizer.safetensors`,
`lstm_state.safetensors` (by row of the global batch), `run.json` (`RunRecord`), and
`manifest.json` with the size and sha256 of each of them. A checkpoint is written under a temporary
name, synced, renamed, and verified before any older one is deleted. The latest checkpoint is the
latest one whose digests match.

Cost: twice the size of the weights on disk (Adagrad), written and read once per save.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from bilm.errors import BilmError, CheckpointError
from bilm.files.reading import sha256_of
from bilm.files.sections import Section, parse_section
from bilm.files.strict_json import read_json
from bilm.files.writing import atomic_directory, write_text
from bilm.pretrained.tensors import TensorFile, save_tensors
from bilm.training.run_record import RUN_FILE, RunRecord

logger = logging.getLogger(__name__)

WEIGHTS, OPTIMIZER, LSTM_STATE = "weights", "optimizer", "lstm_state"

TENSOR_FILES = (WEIGHTS, OPTIMIZER, LSTM_STATE)

MANIFEST_FILE, EVER_SAVED_FILE = "manifest.json", "ever_saved"

MAX_MANIFEST_BYTES = 1 << 24

_NAME = re.compile(r"step-(\d{8,})")


class _FileEntry(Section):
    bytes: int
    sha256: str


class _Manifest(Section):
    files: dict[str, _FileEntry]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose digests have been verified."""

    path: Path
    record: RunRecord

    def tensor(self, file: str, name: str, shape: Sequence[int] | None = None) -> Tensor:
        """Return a tensor of one of the three files; reject it if its shape is not `shape`."""
        path = self.path / f"{file}.safetensors"
        with TensorFile(path) as tensors:
            tensor = tensors.tensor(name)
        if shape is not None and (tensor.shape != tuple(shape) or not tensor.is_floating_point()):
            raise CheckpointError(
                f"{path}: {name!r} is {tensor.dtype} {tuple(tensor.shape)}; expected "
                f"floating-point numbers {tuple(shape)}"
            )
        return tensor

    def names(self, file: str) -> set[str]:
        """Return the names of the tensors in one of the three files."""
        with TensorFile(self.path / f"{file}.safetensors") as tensors:
            return set(tensors.names)


class CheckpointStore:
    """The checkpoints of one run. Only one process may write."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def save(self, tensors: Mapping[str, dict[str, Tensor]], record: RunRecord) -> Checkpoint:
        """Write a checkpoint of the step in `record`, and verify it."""
        path = self.directory / f"step-{record.step:08d}"
        needed = sum(tensors[name][key].nbytes for name in TENSOR_FILES for key in tensors[name])
        with atomic_directory(path, CheckpointError, True, needed) as temporary:
            for name in TENSOR_FILES:
                save_tensors(tensors[name], temporary / f"{name}.safetensors")
            write_text(temporary / RUN_FILE, record.text())
            files = {
                file.name: {
                    "bytes": file.stat().st_size,
                    "sha256": sha256_of(file, CheckpointError),
                }
                for file in sorted(temporary.iterdir())
            }
            write_text(temporary / MANIFEST_FILE, _manifest_text({"files": files}))
        if not (self.directory / EVER_SAVED_FILE).is_file():
            write_text(self.directory / EVER_SAVED_FILE, "")
        return self.verify(path)

    def newest(self) -> Checkpoint | None:
        """Return the latest intact checkpoint; None if the run has never saved one.

        Damaged checkpoints are logged and skipped. If none is intact, raise an error, because
        starting a new run would silently discard the old one.
        """
        paths, reasons = self._paths(), []
        for path in paths:
            try:
                return self.verify(path)
            except BilmError as e:
                logger.warning("skipping damaged checkpoint: %s", e)
                reasons.append(str(e))
        if paths or (self.directory / EVER_SAVED_FILE).exists():
            raise CheckpointError(
                f"none of the checkpoints in {self.directory} is intact"
                + (f" ({reasons[0]})" if reasons else "")
                + "; restore one from a backup, or choose another train.output_dir"
            )
        return None

    def verify(self, path: Path) -> Checkpoint:
        """Check every file of a checkpoint against its manifest."""
        tree = read_json(path / MANIFEST_FILE, CheckpointError, MAX_MANIFEST_BYTES)
        manifest = parse_section(_Manifest, tree, str(path / MANIFEST_FILE), CheckpointError)
        if (path / MANIFEST_FILE).read_text(encoding="utf-8") != _manifest_text(tree):
            raise CheckpointError(f"{path / MANIFEST_FILE} was changed after it was written")
        expected = {f"{name}.safetensors" for name in TENSOR_FILES} | {RUN_FILE}
        if set(manifest.files) != expected:
            names = ", ".join(sorted(set(manifest.files) ^ expected))
            raise CheckpointError(f"{path / MANIFEST_FILE} has missing or unknown files: {names}")
        for name, entry in manifest.files.items():
            _verify_file(path / name, entry)
        record = RunRecord.read(path)
        if _NAME.fullmatch(path.name) is None or record.step != _step_of(path):
            raise CheckpointError(
                f"{path / RUN_FILE} is from step {record.step}, but its directory is {path.name}"
            )
        checkpoint = Checkpoint(path, record)
        for name in TENSOR_FILES:
            checkpoint.names(name)  # a matching digest does not mean that the file is valid
        return checkpoint

    def prune(self, saved: Checkpoint, keep_last: int, best_step: int | None) -> None:
        """Delete all checkpoints but the latest `keep_last` up to `saved`, and the best one.

        Checkpoints of later steps were skipped as damaged when the run was resumed; they are
        deleted too.
        """
        past = [path for path in self._paths() if _step_of(path) <= saved.record.step]
        for path in self._paths():
            if path not in past[:keep_last] and _step_of(path) != best_step:
                if path.is_symlink():  # delete the link, not its target
                    path.unlink()
                else:
                    shutil.rmtree(path)
        for path in self.directory.glob(".step-*"):  # left by a save that was killed
            shutil.rmtree(path, ignore_errors=True)

    def _paths(self) -> list[Path]:
        """Return the paths of all checkpoints, latest first."""
        if not self.directory.is_dir():
            return []
        paths = [p for p in self.directory.iterdir() if _NAME.fullmatch(p.name) and p.is_dir()]
        return sorted(paths, key=_step_of, reverse=True)


def _step_of(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def _manifest_text(tree: Any) -> str:
    """Return the only accepted text of a manifest, so that any change to the file is detected."""
    return json.dumps(tree, indent=1) + "\n"


def _verify_file(path: Path, entry: _FileEntry) -> None:
    try:
        size = path.stat().st_size
    except OSError as e:
        raise CheckpointError(f"cannot read {path}: {e.strerror}") from None
    if size != entry.bytes:
        raise CheckpointError(
            f"{path} has {size:,} bytes; according to {MANIFEST_FILE}, it must have {entry.bytes:,}"
        )
    if sha256_of(path, CheckpointError) != entry.sha256:
        raise CheckpointError(f"{path} is damaged: its sha256 differs from that in {MANIFEST_FILE}")
