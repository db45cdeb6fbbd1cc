"""Build the package, and install it into virtual environments without the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

SOURCES = ("bilm", "data_tools", "downstream", "configs", "models")
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
TIMEOUT_SECONDS = 240

_BUILD_SDIST = "from setuptools import build_meta; print(build_meta.build_sdist('dist'))"


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and the directory in which its commands run."""

    directory: Path
    work: Path

    @property
    def python(self) -> str:
        """The path of the interpreter."""
        return str(self.directory / "bin" / "python")

    @property
    def packages(self) -> Path:
        """The directory of the installed packages."""
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.directory / "lib" / version / "site-packages"

    def run(
        self, *words: str, timeout: float = TIMEOUT_SECONDS, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, as in an activated one, and return its output."""
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        path = f"{self.directory / 'bin'}{os.pathsep}{os.environ['PATH']}"
        fixed = {"PATH": path, "PYTHONNOUSERSITE": "1", "OMP_NUM_THREADS": "1"}
        program = self.directory / "bin" / words[0]
        return subprocess.run(
            [str(program), *words[1:]],
            cwd=self.work,
            env={**kept, **fixed, **variables},
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def check(self, *words: str) -> str:
        """Run a program that must succeed, and return what it prints."""
        done = self.run(*words)
        assert done.returncode == 0, f"{words}\n{done.stdout[-3000:]}{done.stderr[-6000:]}"
        return done.stdout


def build_sdist(directory: Path) -> Path:
    """Build the source distribution from a copy of the sources."""
    source = directory / "source"
    ignored = shutil.ignore_patterns("__pycache__")
    for name in SOURCES:
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, source)
    done = _run([sys.executable, "-c", _BUILD_SDIST], cwd=source)
    return source / "dist" / done.splitlines()[-1]


def build_wheel(sdist: Path) -> Path:
    """Build the wheel from the source distribution."""
    output = sdist.parent / "wheel"
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    _run([sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(output), str(sdist)])
    (wheel,) = output.glob("*.whl")
    return wheel


def create(directory: Path, wheel: Path, without: Collection[str] = ()) -> Environment:
    """Install `wheel` into a new environment with this environment's packages.

    The packages are links, so nothing is downloaded. The modules `without` are left out.
    """
    venv.create(directory / "venv", symlinks=True)
    environment = Environment(directory / "venv", directory / "work")
    environment.work.mkdir()
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        is_checkout = entry.name.startswith(("__editable__", "bilm"))
        if not is_checkout and entry.suffix != ".pth" and entry.stem not in without:
            (environment.packages / entry.name).symlink_to(entry)
    options = ["--quiet", "--no-deps", "--no-index"]
    _run([environment.python, "-m", "pip", "install", *options, str(wheel)])
    if "deepspeed" not in without:
        launcher = Path(sys.executable).with_name("deepspeed").read_text(encoding="utf-8")
        script = environment.directory / "bin" / "deepspeed"
        body = launcher.partition("\n")[2]
        script.write_text(f"#!{environment.python}\n{body}", encoding="utf-8")
        script.chmod(0o755)
    return environment


def _run(command: Sequence[str], cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout
