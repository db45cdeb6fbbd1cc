"""The port on which rank 0 lets the other ranks join, checked before torch is imported.

The launcher chooses it (29500 by default), so a second run on the same machine gets the same one.
"""

from __future__ import annotations

import errno
import os
import socket

from bilm.distributed.process import rank_numbers
from bilm.errors import ConfigError


def check_port() -> None:
    """Reject a port that is in use, if this process will listen on it.

    A run of one rank needs no port, and torchrun's agent may listen instead of rank 0.
    """
    numbers, port = rank_numbers(), int(os.environ.get("MASTER_PORT", "0"))
    if numbers.rank > 0 or numbers.world == 1 or has_agent() or _is_free(port):
        return
    raise ConfigError(
        f"port {port}, through which the ranks of this run connect, is in use, probably by another "
        f"run on this machine. {port_remedy()}"
    )


def has_agent() -> bool:
    """Return whether the agent of torchrun hosts the store through which the ranks connect."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def port_remedy() -> str:
    """Return how to choose another port, with one that is free on this machine."""
    with socket.create_server(("", 0)) as unused:
        other = unused.getsockname()[1]
    return (
        f"Pass a free one to the launcher: deepspeed --master_port {other} launch/... (or torchrun "
        f"--master_port {other}, or --rdzv-endpoint localhost:{other}), or set MASTER_PORT={other} "
        "on all ranks"
    )


def _is_free(port: int) -> bool:
    """Return whether torch could listen on `port`, which it does on all addresses.

    Connections of an earlier run that are still closing do not count, as for torch.
    """
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((address, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False  # other errors mean that this machine has no such addresses
    return True
