"""Checkpoints of a run: atomic, digest-checked, in safetensors and JSON, for any number of ranks.

`checkpoints/step-00001000/` holds `weights.safetensors`, `optimizer.safetensors`,
`lstm_state.safetensors` (by row of the global batch), `run.json` (step, what decides the run, and
what the logs had summed up), and last `manifest.json` with the size and sha256 of each. It is
written under a temporary name, synced, renamed, and read back before any older one is deleted.
"Newest" is the newest whose digests hold.

Cost: twice the weights (Adagrad) in disk, one write and one read of it per save.
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


@dataclass
class Progress:
    """How far a run is, beside its weights: all of it goes into every checkpoint."""

    step: int = 0
    evaluated_step: int = 0
    best_step: int | None = None
    best_perplexity: float | None = None
    evaluations_since_best: int = 0


logger = logging.getLogger(__name__)

WEIGHTS, OPTIMIZER, LSTM_STATE = "weights", "optimizer", "lstm_state"

TENSOR_FILES = (WEIGHTS, OPTIMIZER, LSTM_STATE)

RUN_FILE, MANIFEST_FILE, EVER_SAVED_FILE = "run.json", "manifest.json", "ever_saved"

MAX_JSON_BYTES = 1 << 24

VERSION = 2

_NAME = re.compile(r"step-(\d{8,})")


class _FileEntry(Section):
    bytes: int
    sha256: str


class _Manifest(Section):
    files: dict[str, _FileEntry]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose digests have been checked."""

    path: Path
    step: int
    run: dict[str, Any]

    def tensor(self, file: str, name: str, shape: Sequence[int] | None = None) -> Tensor:
        """One tensor of one of the three files; of another `shape` it is refused."""
        path = self.path / f"{file}.safetensors"
        with TensorFile(path) as tensors:
            tensor = tensors.tensor(name)
        if shape is not None and (tensor.shape != tuple(shape) or not tensor.is_floating_point()):
            raise CheckpointError(
                f"{path}: {name!r} is {tensor.dtype} {tuple(tensor.shape)}; floating-point numbers "
                f"{tuple(shape)} are expected"
            )
        return tensor

    def names(self, file: str) -> set[str]:
        """The names of the tensors in one of the three files."""
        with TensorFile(self.path / f"{file}.safetensors") as tensors:
            return set(tensors.names)


class CheckpointStore:
    """The checkpoints of one run. Only one process may write."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def save(
        self, step: int, tensors: Mapping[str, dict[str, Tensor]], run: dict[str, Any]
    ) -> Checkpoint:
        """Write the checkpoint of `step`, and read it back."""
        path = self.directory / f"step-{step:08d}"
        needed = sum(tensors[name][key].nbytes for name in TENSOR_FILES for key in tensors[name])
        with atomic_directory(path, CheckpointError, True, needed) as temporary:
            for name in TENSOR_FILES:
                save_tensors(tensors[name], temporary / f"{name}.safetensors")
            text = json.dumps({"version": VERSION, "step": step, **run}, indent=1, allow_nan=False)
            write_text(temporary / RUN_FILE, text + "\n")
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
        """The newest one that is whole; None if the run never saved one.

        A damaged one is named and passed over. That none is whole is an error: to start afresh
        would throw a run away in silence.
        """
        paths, reasons = self._paths(), []
        for path in paths:
            try:
                return self.verify(path)
            except BilmError as e:
                logger.warning("checkpoint passed over: %s", e)
                reasons.append(str(e))
        if paths or (self.directory / EVER_SAVED_FILE).exists():
            raise CheckpointError(
                f"none of the checkpoints in {self.directory} is whole"
                + (f" ({reasons[0]})" if reasons else "")
                + "; restore one from a copy, or train into another output_dir"
            )
        return None

    def verify(self, path: Path) -> Checkpoint:
        """Check every file of a checkpoint against its manifest."""
        tree = read_json(path / MANIFEST_FILE, CheckpointError, MAX_JSON_BYTES)
        manifest = parse_section(_Manifest, tree, str(path / MANIFEST_FILE), CheckpointError)
        if (path / MANIFEST_FILE).read_text(encoding="utf-8") != _manifest_text(tree):
            raise CheckpointError(f"{path / MANIFEST_FILE} is not as it was written")
        expected = {f"{name}.safetensors" for name in TENSOR_FILES} | {RUN_FILE}
        if set(manifest.files) != expected:
            odd = ", ".join(sorted(set(manifest.files) ^ expected))
            raise CheckpointError(f"{path / MANIFEST_FILE} differs from a checkpoint's in: {odd}")
        for name, entry in manifest.files.items():
            _verify_file(path / name, entry)
        run = read_json(path / RUN_FILE, CheckpointError, MAX_JSON_BYTES)
        match = _NAME.fullmatch(path.name)
        if match is None or not isinstance(run, dict) or run.get("step") != int(match[1]):
            raise CheckpointError(f"{path / RUN_FILE} is not of the step that {path.name} says")
        if run.get("version") != VERSION:
            raise CheckpointError(
                f"{path} is of version {run.get('version')} of this format; this program reads "
                f"{VERSION}: use the program that wrote it"
            )
        checkpoint = Checkpoint(path, run["step"], run)
        for name in TENSOR_FILES:
            checkpoint.names(name)  # a digest says nothing of what was signed
        return checkpoint

    def prune(self, saved: Checkpoint, keep_last: int, best_step: int | None) -> None:
        """Delete all but the newest `keep_last` and the best, given what was just saved.

        Checkpoints of later steps are of a lost future, passed over as damaged when the run was
        resumed; they count for nothing.
        """
        past = [path for path in self._paths() if _step_of(path) <= saved.step]
        for path in self._paths():
            if path not in past[:keep_last] and _step_of(path) != best_step:
                if path.is_symlink():  # what it points to is not ours to delete
                    path.unlink()
                else:
                    shutil.rmtree(path)
        for path in self.directory.glob(".step-*"):  # left behind by a kill in mid-save
            shutil.rmtree(path, ignore_errors=True)

    def _paths(self) -> list[Path]:
        """Newest first."""
        if not self.directory.is_dir():
            return []
        found = [p for p in self.directory.iterdir() if _NAME.fullmatch(p.name) and p.is_dir()]
        return sorted(found, key=_step_of, reverse=True)


def _step_of(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def _manifest_text(tree: Any) -> str:
    """One text for one content, so that any change of the file is seen."""
    return json.dumps(tree, indent=1) + "\n"


def _verify_file(path: Path, entry: _FileEntry) -> None:
    try:
        size = path.stat().st_size
    except OSError as e:
        raise CheckpointError(f"cannot read {path}: {e.strerror}") from None
    if size != entry.bytes:
        raise CheckpointError(f"{path} has {size:,} bytes; {MANIFEST_FILE} says {entry.bytes:,}")
    if sha256_of(path, CheckpointError) != entry.sha256:
        raise CheckpointError(f"{path} is damaged: its sha256 is not the one in {MANIFEST_FILE}")
