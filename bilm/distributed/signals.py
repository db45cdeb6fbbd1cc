"""Requests to stop: signals, and the exit of the launcher.

A signal handler only sets a flag. After the current step the ranks agree on it, save and exit. The
outer `deepspeed` process does not forward signals, so each rank also checks whether the launcher
processes above it still exist. On another machine, that process starts its launchers through pdsh
and ssh. There, a rank checks whether the connection of ssh is open at both ends (ssh outlives pdsh,
but closes its input). If pdsh runs on the same machine, it also checks whether `deepspeed` is still
the parent of pdsh.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

logger = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

SECOND_SIGNAL_SECONDS = 1.0  # after which a second signal is no longer expected

_LAUNCHER_EXITED = "the launcher of this rank has exited"


class StopRequest:
    """Records whether this process has been asked to stop."""

    def __init__(self) -> None:
        self._chain = _launcher_chain()
        self._pdsh = _find_pdsh(self._chain)
        self._is_input_open = "SSH_CONNECTION" in os.environ and not _has_hung_up(0)
        self._reason = _LAUNCHER_EXITED if _is_orphaned(self._chain) else None
        self._signal_time: float | None = None

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Handle the stop signals for a block, except those that the process ignores (nohup).

        Python handles signals only in the main thread; in any other, no signal requests a stop.
        """
        is_main_thread = threading.current_thread() is threading.main_thread()
        before = {n: signal.getsignal(n) for n in STOP_SIGNALS if is_main_thread}
        handled = {n: handler for n, handler in before.items() if handler is not signal.SIG_IGN}
        for number in handled:
            signal.signal(number, self._on_signal)
        try:
            yield
        finally:
            self.wait_for_second_signal()
            for number, handler in handled.items():
                signal.signal(number, handler)

    @property
    def reason(self) -> str | None:
        """The reason to stop, or None."""
        if self._reason is None and self._has_launcher_exited():
            self._reason = _LAUNCHER_EXITED
        return self._reason

    def _has_launcher_exited(self) -> bool:
        chain = _launcher_chain()
        if chain != self._chain or (len(chain) == 1 and self._has_ssh_closed()):
            return True
        return self._pdsh is not None and not _is_deepspeed(_parent_of(self._pdsh))

    def _has_ssh_closed(self) -> bool:
        """Return whether sshd has closed a broken connection, or pdsh has exited at its other end.

        Then nothing reads the log of this process, or nothing can write to its input any more.
        """
        return _has_hung_up(2) or (self._is_input_open and _has_hung_up(0))

    def wait_for_second_signal(self) -> None:
        """After a signal, wait until a second one is no longer expected.

        DeepSpeed's launcher waits for its ranks and then exits with 1. A second signal during that
        exit makes `deepspeed` return 0, as if the training had finished.
        """
        if self._signal_time is not None:
            time.sleep(max(0.0, self._signal_time + SECOND_SIGNAL_SECONDS - time.monotonic()))

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self._signal_time is None:
            self._signal_time = time.monotonic()
        self._reason = signal.Signals(number).name


def _launcher_chain() -> tuple[int, ...]:
    """Return the ids of DeepSpeed's own processes above this one, nearest first.

    The shell above them is not included, since it may exit (a logout after nohup). Without a
    launcher the chain is empty.
    """
    chain: list[int] = []
    process: int | None = os.getppid()
    while process is not None and len(chain) < 4 and _is_deepspeed(process):
        chain.append(process)
        process = _parent_of(process)
    return tuple(chain)


def _is_orphaned(chain: tuple[int, ...]) -> bool:
    """Return whether the outer `deepspeed` exited while this process was starting.

    DeepSpeed's launcher is then the only process of the chain, the leader of its process group has
    exited, and its parent belongs to another session.
    """
    if len(chain) != 1 or not _is_deepspeed(chain[0]):
        return False
    try:
        group, session = os.getpgid(chain[0]), os.getsid(chain[0])
        parent = _parent_of(chain[0])
        is_adopted = parent is not None and os.getsid(parent) != session
    except OSError:
        return False
    return is_adopted and not Path(f"/proc/{group}").exists()


def _find_pdsh(chain: tuple[int, ...]) -> int | None:
    """Return the pdsh that has started this rank's launcher, if it runs on this machine.

    It has the options of the launcher that identify the job among its own arguments.
    """
    if len(chain) != 1:  # the outer `deepspeed` is above the launcher
        return None
    names = (b"--world_info=", b"--master_addr=", b"--master_port=")
    options = {part for part in _arguments(chain[0]) if part.startswith(names)}
    for directory in Path("/proc").glob("[0-9]*"):
        parts = _arguments(int(directory.name))
        if parts[0].rsplit(b"/", 1)[-1] == b"pdsh" and options and options <= set(parts):
            return int(directory.name)
    return None


def _has_hung_up(descriptor: int) -> bool:
    """Return whether the other end of a pipe is closed."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _is_deepspeed(process: int | None) -> bool:
    """Return whether this is `deepspeed` itself, or `python -m deepspeed.launcher.launch`."""
    return process is not None and any(
        part.rsplit(b"/", 1)[-1] == b"deepspeed" or part.startswith(b"deepspeed.launcher.")
        for part in _arguments(process)
    )


def _arguments(process: int) -> list[bytes]:
    """Return the command line, or one empty part.

    It is not known if the process has exited, or on other systems than Linux.
    """
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return [b""]


def _parent_of(process: int) -> int | None:
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        return int(text.rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None
