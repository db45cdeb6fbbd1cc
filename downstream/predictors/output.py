"""The output of `downstream.predict`: a file, or standard output.

A file is replaced only on request, and never if it is the input. Standard output is UTF-8 in
every locale.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from bilm.errors import ConfigError, OutputError
from bilm.files.writing import atomic_file, disk_full_message, is_disk_full, reject_existing
from downstream.reports.pages import check_writable

STANDARD = Path("-")  # standard input or output


def check_output(output: Path, suffixes: tuple[str, ...], source: Path, overwrite: bool) -> None:
    """Reject an output that has another suffix, is the input, exists, or cannot be written."""
    if output == STANDARD:
        return
    if output.suffix not in suffixes:
        raise ConfigError(f"--output is {output}; its name must end in {' or '.join(suffixes)}")
    if output.is_dir():
        raise ConfigError(f"--output is {output}, a directory; pass a file path")
    check_writable(output)
    if source != STANDARD and output.exists() and source.exists() and output.samefile(source):
        raise ConfigError(f"--output is {output}, which is the input; choose another path")
    reject_existing(output, OutputError, overwrite)


def write_output(path: Path, text: str) -> None:
    """Write the predictions, atomically if it is a file; a full disk is an OutputError."""
    data = text.encode("utf-8")
    if path == STANDARD:
        _write_standard(data)
        return
    try:
        with atomic_file(path) as temporary:
            temporary.write_bytes(data)
    except OSError as e:
        if not is_disk_full(e):
            raise
        raise OutputError(disk_full_message(path, len(data))) from None


def _write_standard(data: bytes) -> None:
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as e:
        if not is_disk_full(e):
            raise
        # The buffer keeps what was not written; without this, the flush at exit fails again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OutputError(
            f"no space left while writing standard output: {len(data):,} bytes needed; the output "
            "is not complete"
        ) from None
