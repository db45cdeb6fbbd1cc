"""Writing safetensors so that a full disk is what it is: an OSError."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

_DISK_FULL = ("No space left", "File too large", "quota")


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write named tensors to `path`."""
    try:
        save_file(dict(tensors), path)
    except SafetensorError as error:  # its own type hides which error of the system it was
        is_full = any(words in str(error) for words in _DISK_FULL)
        raise OSError(errno.ENOSPC if is_full else errno.EIO, str(error), str(path)) from None
