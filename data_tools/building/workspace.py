"""The directory of an unfinished build, `.<output>.build` beside the output.

It contains the output of all finished tasks, so a build that was killed resumes where it ended. It
belongs to one plan: the same inputs, options and version. A build that fails removes it; a build
that was killed, or that lost its workers, leaves it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import bilm
from bilm.errors import BilmError, ConfigError, CorpusError
from bilm.files.reading import sha256_of
from bilm.files.writing import (
    disk_full_message,
    exclusive_lock,
    is_disk_full,
    shared_lock,
    write_text,
)
from data_tools.building.workers import LostWorkerError
from data_tools.reading.options import CorpusOptions, GivenVocabulary, Share
from data_tools.reading.parts import Part

_PLAN_FILE, _LOCK_FILE = "plan.json", "lock"


@dataclass(frozen=True)
class Workspace:
    """The subdirectories of an unfinished build."""

    path: Path

    @property
    def parts(self) -> Path:
        """The encoded parts."""
        return self.path / "parts"

    @property
    def ranges(self) -> Path:
        """The merged word types."""
        return self.path / "ranges"

    @property
    def final_ids(self) -> Path:
        """The file of the final ids of all types."""
        return self.path / "final.bin"

    @property
    def scattered(self) -> Path:
        """The parts, sorted by bucket."""
        return self.path / "scattered"

    @property
    def buckets(self) -> Path:
        """The shuffled buckets of each split."""
        return self.path / "buckets"

    @property
    def shards(self) -> Path:
        """The shards of each split."""
        return self.path / "shards"


def workspace_path(output: Path) -> Path:
    """Return the directory of an unfinished build of `output`."""
    return output.absolute().with_name(f".{output.name}.build")


@contextmanager
def whole_build(options: CorpusOptions, parts: list[Part]) -> Iterator[Workspace]:
    """Create or resume the workspace for this process alone, and remove it at the end."""
    output = options.output.path
    path = workspace_path(output)
    _create(path, output)
    with exclusive_lock(path / _LOCK_FILE, CorpusError, _busy(output)):
        try:
            plan = _plan(options, parts)
            if _read_plan(path) != plan:
                _clear(path)
                write_text(path / _PLAN_FILE, plan)
            yield Workspace(path)
        except LostWorkerError:
            raise
        except OSError as e:
            written = sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
            shutil.rmtree(path, ignore_errors=True)
            if not is_disk_full(e):
                raise
            raise CorpusError(disk_full_message(output, written)) from None
        except BilmError:
            shutil.rmtree(path, ignore_errors=True)
            raise
        shutil.rmtree(path)


@contextmanager
def shared_build(options: CorpusOptions, parts: list[Part], share: Share) -> Iterator[Workspace]:
    """Create or join the workspace, together with other processes that encode other parts."""
    output = options.output.path
    path = workspace_path(output)
    _create(path, output)
    message = f"another process is running --part {share} of {output}; wait for it, or end it"
    with (
        shared_lock(path / _LOCK_FILE, CorpusError, _busy(output)),
        exclusive_lock(path / f"{share.number}-{share.total}.lock", CorpusError, message),
    ):
        plan = _plan(options, parts)
        if _read_plan(path) is None:
            write_text(path / _PLAN_FILE, plan)
        if _read_plan(path) != plan:
            raise ConfigError(
                f"{path} belongs to a build with other inputs, options or another version; use the "
                "same ones for all parts, or remove the directory"
            )
        yield Workspace(path)


def _busy(output: Path) -> str:
    return f"another process is building {output}; wait for it, or end it"


def _create(path: Path, output: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise CorpusError(f"cannot create {output}: {e.strerror}") from None


def _clear(path: Path) -> None:
    for entry in path.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != _LOCK_FILE:
            entry.unlink()


def _read_plan(path: Path) -> str | None:
    try:
        return (path / _PLAN_FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def _plan(options: CorpusOptions, parts: list[Part]) -> str:
    """Return the digest of everything that affects the output of tasks."""
    given = options.vocabulary
    model = options.tokenizer.sentencepiece_model
    content = {
        "version": bilm.__version__,
        "options": options.describe(),
        "tokenizer": [options.tokenizer.spec().to_json(), options.tokenizer.pieces],
        "reading": [options.text.fields, options.text.encoding],
        "model": sha256_of(model, CorpusError) if model and model.is_file() else None,
        "vocabulary": sha256_of(given.file, CorpusError)
        if isinstance(given, GivenVocabulary)
        else None,
        "files": [
            [str(file.path), file.path.stat().st_size, file.path.stat().st_mtime_ns]
            for file in options.text.inputs
        ],
        "parts": [asdict(part) for part in parts],
    }
    text = json.dumps(content, default=str, sort_keys=True)
    return json.dumps({"plan": hashlib.sha256(text.encode()).hexdigest()})
