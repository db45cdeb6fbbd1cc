"""A preloaded library that makes the n-th write, sync or rename below a directory fail."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

KINDS = ("error", "full", "death")
SOURCE = Path(__file__).with_name("faults.c")


def build(directory: Path) -> Path:
    """Compile the library and return its path."""
    library = directory / "faults.so"
    if not library.exists():
        command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True, capture_output=True)
    return library


def environment(library: Path, directory: Path, at: int, kind: str) -> dict[str, str]:
    """Return the environment that arms the library in a new process and its children."""
    return {
        "LD_PRELOAD": str(library),
        "FAULTS_DIRECTORY": str(directory),
        "FAULTS_AT": str(at),
        "FAULTS_KIND": kind,
    }


def arm(directory: Path, at: int, kind: str) -> None:
    """Arm the library in this process, which must have been started with it."""
    ctypes.CDLL(None).faults_arm(os.fsencode(directory), ctypes.c_long(at), kind.encode())


def count() -> int:
    """Return the number of operations since the library was armed."""
    counted: int = ctypes.CDLL(None).faults_count()
    return counted
