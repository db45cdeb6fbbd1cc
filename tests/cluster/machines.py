"""Simulated machines on one: namespaces with their own network, host name, process ids and mounts.

`/run` is private to each machine; all other files are shared, as on a network file system. Nothing
has a global name. A machine and all of its processes end with the process that created it, however
that one ends. Needs root, iproute2 and util-linux; `drop_packets` also needs nftables.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import psutil

from bilm.distributed.process import die_with_parent

PROGRAMS = {
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "nft": "nftables",
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "pdsh": "pdsh",
    "slurmctld": "slurmctld (slurm-wlm)",
    "slurmd": "slurmd (slurm-wlm)",
    "sbatch": "slurm-client (slurm-wlm)",
    "munged": "munge",
    "pkill": "procps",
}
BASIC_PROGRAMS = ("ip", "nsenter", "unshare")
SECONDS = 30

# The first process of a machine. It adopts and reaps processes whose parents have exited.
_INIT = """
mount --bind "$1" /etc/hosts && mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /sys/fs/cgroup &&
hostname "$0" && ip link set lo up && echo ready || exit 1
while :; do sleep 5 & wait $!; done
"""

_DROP = """
table inet cluster {
  chain in { type filter hook input priority 0; iifname "eth0" drop; }
  chain out { type filter hook output priority 0; oifname "eth0" drop; }
}
"""


def missing(programs: Iterable[str]) -> list[str]:
    """Return what this machine lacks to simulate others, such as root or a package."""
    lacks = [] if os.geteuid() == 0 else ["root"]
    path = _environment()["PATH"]
    return lacks + sorted({PROGRAMS[p] for p in programs if shutil.which(p, path=path) is None})


def _environment() -> dict[str, str]:
    """Return this environment, with the directories of administration in PATH."""
    return {**os.environ, "PATH": os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"}


class Machine:
    """A simulated machine; `address` is that of its interface eth0."""

    def __init__(self, name: str, address: str, hosts: Path) -> None:
        """Start it; `hosts` becomes its /etc/hosts."""
        self.name, self.address, self.hosts = name, address, hosts
        new = ["unshare", "--net", "--uts", "--pid", "--mount", "--fork", "--kill-child"]
        self._outer = subprocess.Popen(
            [*new, "--mount-proc", "bash", "-c", _INIT, name, str(hosts)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(),
            start_new_session=True,  # without the signals of the terminal, such as Ctrl-C
            preexec_fn=partial(die_with_parent, signal.SIGKILL),
        )
        assert self._outer.stdout is not None
        assert self._outer.stderr is not None
        if self._outer.stdout.readline() != "ready\n":
            self._outer.wait(SECONDS)
            raise OSError(f"cannot start {name}: {self._outer.stderr.read().strip()}")
        self.init = psutil.Process(self._outer.pid).children()[0]

    def enter(self, *command: str | Path, cwd: Path = Path("/")) -> list[str]:
        """Return the command line that runs `command` on this machine."""
        inside = ["nsenter", "-t", str(self.init.pid), "-n", "-u", "-p", "-m"]
        return [*inside, "env", "-C", str(cwd), *map(str, command)]

    def run(
        self,
        *command: str | Path,
        code: int | None = 0,
        env: dict[str, str] | None = None,
        text: str | None = None,
    ) -> str:
        """Run a command on this machine with an input; check its exit code, return its output."""
        done = subprocess.run(
            self.enter(*command),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env=env or _environment(),
            input=text,
        )
        if code is not None and done.returncode != code:
            raise OSError(f"{self.name}: {command} exited with {done.returncode}: {done.stderr}")
        return done.stdout

    def configure(self, *command: str) -> None:
        """Run a command in the network of this machine, with the process ids of the real one."""
        inside = ["nsenter", "-t", str(self.init.pid), "-n", *command]
        subprocess.run(inside, check=True, capture_output=True, timeout=SECONDS, env=_environment())

    def processes(self, *words: str) -> list[psutil.Process]:
        """Return the processes of this machine whose command lines contain all words."""
        namespace = _namespace_of(self.init.pid)
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.Error):
                if _namespace_of(process.pid) == namespace:
                    line = " ".join(process.cmdline())
                    if line and all(word in line for word in words):
                        found.append(process)
        return found

    def close(self) -> None:
        """End this machine and all of its processes."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self.init.kill()  # the kernel kills all others
        self._outer.wait(SECONDS)


def connect(one: Machine, other: Machine) -> None:
    """Connect two machines by a cable, from eth0 to eth0."""
    _add_cable(one, "eth0", other)
    for machine in (one, other):
        _set_address(machine)


def connect_to_switch(hub: Machine, machines: list[Machine]) -> None:
    """Connect machines to a bridge in `hub`, whose own interface is the bridge."""
    hub.configure("ip", "link", "add", "br0", "type", "bridge")
    hub.configure("ip", "addr", "add", f"{hub.address}/24", "dev", "br0")
    hub.configure("ip", "link", "set", "br0", "up")
    for machine in machines:
        port = f"to-{machine.name}"
        _add_cable(hub, port, machine)
        hub.configure("ip", "link", "set", port, "master", "br0", "up")
        _set_address(machine)


def _add_cable(one: Machine, interface: str, other: Machine) -> None:
    """Connect an interface of one machine with eth0 of the other."""
    ends = [interface, "type", "veth", "peer", "name", "eth0", "netns", str(other.init.pid)]
    one.configure("ip", "link", "add", *ends)


def _set_address(machine: Machine) -> None:
    machine.configure("ip", "addr", "add", f"{machine.address}/24", "dev", "eth0")
    machine.configure("ip", "link", "set", "eth0", "up")


def drop_packets(machine: Machine, is_on: bool) -> None:
    """Drop all packets of a machine silently, both ways, or stop doing so."""
    rules = _DROP if is_on else "delete table inet cluster"
    machine.run("nft", "-f", "-", text=rules)


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> float:
    """Wait until a function returns a true value; return the seconds that it took."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > seconds:
            raise AssertionError(f"{what} did not happen within {seconds:.0f} s")
        time.sleep(0.05)
    return time.monotonic() - start


def _namespace_of(process: int) -> str:
    return str(Path(f"/proc/{process}/ns/pid").readlink())
