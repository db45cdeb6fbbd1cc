"""Our few lines of C, built on first use with the system's compiler, and how to call them.

The library is kept in a cache (`$BILM_CACHE`, else `~/.cache/bilm`) under a name that says what it
was made from: source, compiler, flags and processor. It is written under a temporary name and
renamed, so that ranks that start together and kills in between do no harm, and nothing ever waits
for a lock. Takes about a second, once. Without a compiler there is one warning, and everything runs
in plain torch. `BILM_NATIVE=0` asks for that.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

SOURCE = Path(__file__).with_name("kernels.c")

FLAGS = ["-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math"]

FLAGS += ["-fopenmp", "-fPIC", "-shared"]

SUFFIXES = {torch.float32: "f32", torch.float64: "f64"}


class Address(NamedTuple):
    """A place inside a tensor; the caller keeps the tensor alive."""

    value: int


def is_available(*tensors: Tensor) -> bool:
    """Whether the kernels can take these tensors: on the CPU, of a type that they know."""
    return all(t.device.type == "cpu" and t.dtype in SUFFIXES for t in tensors) and (
        library() is not None
    )


def call(name: str, dtype: torch.dtype, *arguments: Tensor | Address | int | float) -> None:
    """Call a kernel; tensors go by address and must be dense, floats in the kernel's own type."""
    kernels = library()
    assert kernels is not None
    real = ctypes.c_float if dtype == torch.float32 else ctypes.c_double
    converted: list[object] = []
    for argument in arguments:
        if isinstance(argument, Tensor):
            assert argument.is_contiguous()
            converted.append(ctypes.c_void_p(argument.data_ptr()))
        elif isinstance(argument, Address):
            converted.append(ctypes.c_void_p(argument.value))
        elif isinstance(argument, int):
            converted.append(ctypes.c_int64(argument))
        else:
            converted.append(real(argument))
    getattr(kernels, f"{name}_{SUFFIXES[dtype]}")(*converted)


@functools.cache
def library() -> ctypes.CDLL | None:
    """The loaded kernels, or None where they cannot be had."""
    if os.environ.get("BILM_NATIVE", "1") == "0":
        return None
    try:
        compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
        if compiler is None:
            raise OSError("no C compiler was found")
        path = _cache_directory() / f"kernels-{_fingerprint(compiler)}.so"
        if not path.exists():
            _build(compiler, path)
        return ctypes.CDLL(str(path))
    except (OSError, subprocess.SubprocessError) as error:
        logger.warning("the fast kernels cannot be used, training is slower: %s", error)
        return None


def _build(compiler: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=".kernels-", suffix=".so", dir=path.parent)
    os.close(descriptor)
    try:
        done = subprocess.run(
            [compiler, *FLAGS, str(SOURCE), "-o", name, "-lm"],
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode:
            raise OSError(f"{compiler} failed: {done.stderr.strip()[:500]}")
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


def _cache_directory() -> Path:
    named = os.environ.get("BILM_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "bilm"


def _fingerprint(compiler: str) -> str:
    version = subprocess.run(
        [compiler, "--version"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    parts = [SOURCE.read_text(encoding="utf-8"), version, *FLAGS, platform.machine(), _processor()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    """What -march=native depends on: the processor's features."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        return platform.processor()
