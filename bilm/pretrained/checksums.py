"""`checksums.json` of an exported model: the size and SHA-256 of every other file of its directory.

A directory with this file is verified whenever it is read, so that a changed or truncated file is
rejected. The cost is one SHA-256 pass over the files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from pydantic import Field

from bilm.errors import CheckpointError
from bilm.files.reading import sha256_of
from bilm.files.sections import Section, parse_section
from bilm.files.strict_json import read_json
from bilm.files.writing import write_text

CHECKSUMS_FILE = "checksums.json"

FileName = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")
]  # without a directory

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _FileRecord(Section):
    bytes: Annotated[int, Field(ge=0)]
    sha256: Digest


class _Checksums(Section):
    files: dict[FileName, _FileRecord]


def write_checksums(directory: Path) -> None:
    """Record all files of `directory`, which must not have subdirectories."""
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": sha256_of(path, CheckpointError)}
        for path in sorted(directory.iterdir())
        if path.name != CHECKSUMS_FILE
    }
    write_text(directory / CHECKSUMS_FILE, json.dumps({"files": files}, indent=2) + "\n")


def verify_checksums(directory: Path, digest: str | None = None) -> None:
    """Compare the files of `directory` with its checksums, if it has any.

    With `digest`, the SHA-256 of the checksums themselves, they are required and compared too.
    """
    path = directory / CHECKSUMS_FILE
    if digest is None and not path.exists():
        return
    if digest is not None and sha256_of(path, CheckpointError) != digest:
        raise CheckpointError(f"{path} was changed; reinstall bilm, or restore the file")
    checksums = parse_section(
        _Checksums, read_json(path, CheckpointError), str(path), CheckpointError
    )
    for name, record in checksums.files.items():
        file = directory / name
        if not file.is_file():
            raise CheckpointError(f"{file} is missing; {path} lists it")
        if file.stat().st_size != record.bytes or sha256_of(file, CheckpointError) != record.sha256:
            raise CheckpointError(
                f"{file} differs from its checksum in {CHECKSUMS_FILE}: it is damaged or was "
                f"changed. Copy it again, or delete {path} if you changed the file on purpose"
            )
