"""The machines of a hostfile: which of them answer, and processes on them.

This module does not import torch.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import bilm
from bilm.distributed.links import own_address_towards
from bilm.errors import ConfigError

_CONNECT_SECONDS = 10

_PROBE_SECONDS = 30  # how long a machine may take to import bilm

# ssh exits if the other machine has not answered for 30 seconds.
_SSH = (
    *("ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_SECONDS}"),
    *("-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"),
)

# The variables that ranks on other machines get from this one begin with these.
_EXPORTED = ("BILM_", "CUDA_", "DS_", "GLOO_", "GOMP_", "KMP_", "NCCL_", "OMP_", "TORCH_")


@dataclass(frozen=True)
class Machine:
    """A line of a hostfile: the name that ssh reaches, and the number of ranks."""

    host: str
    slots: int

    @property
    def is_local(self) -> bool:
        """Whether this is the machine of this process, which needs no ssh."""
        return self.host in ("localhost", "127.0.0.1", socket.gethostname())


def read_hostfile(path: Path) -> tuple[Machine, ...]:
    """Return the machines of a file with a line `name slots=8` for each, as for `deepspeed`."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--hostfile {path} cannot be read: {error}") from None
    machines: dict[str, Machine] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.strip().startswith("#"):
            continue
        match = re.fullmatch(r"\s*([^\s-]\S*)\s+slots=([1-9]\d{0,5})\s*", line)
        if match is None or match[1] in machines:
            raise ConfigError(
                f"line {number} of {path} is {line.strip()!r}; it must have the form `name slots=8`"
                ", with a name that is in no other line"
            )
        machines[match[1]] = Machine(match[1], int(match[2]))
    if not machines:
        raise ConfigError(f"{path} has no machines; add a line `name slots=8` for each")
    return tuple(machines.values())


def find_answering(machines: Sequence[Machine]) -> tuple[Machine, ...]:
    """Return the machines on which ranks can be started now, in the same order.

    After a reboot, ssh may work before the directory of this process is mounted.
    """
    with ThreadPoolExecutor(max_workers=32) as pool:
        answers = list(pool.map(_answers, machines))
    return tuple(m for m, is_there in zip(machines, answers, strict=True) if is_there)


def _answers(machine: Machine) -> bool:
    if machine.is_local:
        return True
    try:
        done = subprocess.run(
            _remote_command(machine, ["-c", "import bilm"]),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def address_of_first(machines: Sequence[Machine]) -> str:
    """Return an address at which all machines reach the first one."""
    others = [machine.host for machine in machines if not machine.is_local]
    if not machines[0].is_local:
        return machines[0].host
    return own_address_towards(others[0]) if others else "127.0.0.1"


def start_module(machine: Machine, module: str) -> subprocess.Popen[str]:
    """Run a module on a machine, in this directory and with this Python, and return its process.

    Signals of the terminal do not reach it. It is connected to this process by its standard input.
    """
    arguments = ["-m", module]
    is_local = machine.is_local
    command = [sys.executable, *arguments] if is_local else _remote_command(machine, arguments)
    return subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": _python_path()},
        stdin=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _remote_command(machine: Machine, arguments: list[str]) -> list[str]:
    """Return the command that runs this Python in this directory on another machine."""
    python = shlex.join(["env", f"PYTHONPATH={_python_path()}", sys.executable, *arguments])
    return [*_SSH, machine.host, f"cd {shlex.quote(str(Path.cwd()))} && exec {python}"]


def _python_path() -> str:
    """Return a PYTHONPATH with which `bilm` can be imported, also from a checkout."""
    root = str(Path(bilm.__file__).resolve().parents[1])
    return os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])


def exported_variables() -> dict[str, str]:
    """Return the variables of this process that ranks on other machines get, too."""
    return {name: text for name, text in os.environ.items() if name.startswith(_EXPORTED)}
