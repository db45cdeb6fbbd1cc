"""Simulated machines for benchmarks/links.py: network namespaces joined by a bridge (Linux, root).

Each machine has one interface, whose rate `tc` limits in both directions with a token bucket. All
names contain the number of this process, and everything is removed at the end, also after an error.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from types import TracebackType

BURST_BYTES = 256 * 1024
UNLIMITED = 0


def run(*command: str) -> str:
    """Run a command and return its output."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return done.stdout


def shape(names: Sequence[str], hub: str, rate: int) -> None:
    """Limit the link of each machine to `rate` bits per second in both directions."""
    limit = ["pfifo", "limit", "10000"]
    if rate != UNLIMITED:
        limit = ["tbf", "rate", f"{rate}bit", "burst", str(BURST_BYTES), "latency", "400ms"]
    for number, name in enumerate(names):
        for namespace, device in ((name, "eth0"), (hub, f"port{number}")):
            run("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", *limit)


def sent_bytes(name: str) -> int:
    """Return the bytes that a machine has sent since `shape`, including all packet headers.

    The counters of the interface would not do: the kernel passes packets of up to 64 kB through it,
    with one header each. The queue counts the headers of the packets into which they are cut.
    """
    return int(json.loads(run("tc", "-n", name, "-s", "-j", "qdisc", "show"))[-1]["bytes"])


class Network:
    """Machines that exist inside a `with` block."""

    def __init__(self, machines: int) -> None:
        self.hub = f"bilm-{os.getpid()}-hub"
        self.names = [f"bilm-{os.getpid()}-{number}" for number in range(machines)]

    def address(self, number: int) -> str:
        """Return the address of a machine."""
        return f"10.91.0.{number + 1}"

    def __enter__(self) -> Network:
        """Create the machines."""
        try:
            for name in (self.hub, *self.names):
                run("ip", "netns", "add", name)
                run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", self.hub, "link", "add", "bridge", "type", "bridge")
            run("ip", "-n", self.hub, "link", "set", "bridge", "up")
            for number, name in enumerate(self.names):
                peer = ("type", "veth", "peer", "name", "eth0", "netns", name)
                run("ip", "-n", self.hub, "link", "add", f"port{number}", *peer)
                run("ip", "-n", self.hub, "link", "set", f"port{number}", "master", "bridge", "up")
                run("ip", "-n", name, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
                run("ip", "-n", name, "link", "set", "eth0", "up")
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove the machines."""
        self._remove()

    def _remove(self) -> None:
        # A second Ctrl-C, or the second signal that `timeout` sends, must not interrupt this.
        numbers = (signal.SIGINT, signal.SIGTERM)
        handlers = [signal.signal(number, signal.SIG_IGN) for number in numbers]
        for name in (*self.names, self.hub):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=60)
        for number, handler in zip(numbers, handlers, strict=True):
            signal.signal(number, handler)

    def start(
        self, number: int, command: Sequence[str], environment: dict[str, str]
    ) -> subprocess.Popen[str]:
        """Start a process on a machine."""
        return subprocess.Popen(
            ["nsenter", f"--net=/var/run/netns/{self.names[number]}", *command],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
