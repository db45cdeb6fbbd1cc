"""Build the extension of the second device once per version of PyTorch and of its source."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

import torch
from torch.utils import cpp_extension

SOURCE = Path(__file__).with_name("second_device.cpp")
NAME = "second_device_extension"
FLAGS = ["-O0", "-w", "-std=c++20", "-fPIC", "-shared"]
TIMEOUT_SECONDS = 500


def extension_path() -> Path:
    """Return the path of the built extension; the first call takes 20 to 60 seconds.

    Processes that start together wait for the one that builds. Raises `OSError` or
    `subprocess.SubprocessError` if the extension cannot be built.
    """
    parts = [torch.__version__, platform.python_version(), *FLAGS, SOURCE.read_text("utf-8")]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    directory = Path(os.environ.get("BILM_CACHE") or Path.home() / ".cache" / "bilm")
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"second-device-{digest}" / f"{NAME}.so"
    with open(directory / f"second-device-{digest}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            _build(path)
    return path


def _build(path: Path) -> None:
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        raise OSError("no C++ compiler was found")
    includes = [*cpp_extension.include_paths(), sysconfig.get_paths()["include"]]
    libraries = [f"-L{directory}" for directory in cpp_extension.library_paths()]
    libraries += ["-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"]
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    with tempfile.TemporaryDirectory(dir=path.parent) as directory:
        output = Path(directory) / path.name
        completed = subprocess.run(
            [
                compiler,
                *FLAGS,
                f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
                f"-DTORCH_EXTENSION_NAME={NAME}",
                *(f"-I{include}" for include in includes),
                str(SOURCE),
                "-o",
                str(output),
                *libraries,
            ],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
        if completed.returncode:
            raise OSError(f"{compiler} failed: {completed.stderr.strip()[:500]}")
        os.replace(output, path)
