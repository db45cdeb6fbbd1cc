"""Admitting the ranks of one job, and no others, before they form a process group.

Rank 0 of a job, or the agent of torchrun, hosts a store at MASTER_ADDR and MASTER_PORT. A process
of another job may connect to it, if both jobs use the same port. After a restart, the store of
torchrun still contains the addresses of processes that have exited. Each other rank therefore
announces itself under a new number, rank 0 answers the ranks of its own job, and all of them then
use a part of the store with a new random name.
"""

from __future__ import annotations

import functools
import itertools
import json
import logging
import os
import secrets
import socket
import time
from datetime import timedelta
from typing import Any

from torch.distributed import (  # type: ignore[attr-defined]
    DistNetworkError,
    DistStoreError,
    PrefixStore,
    Store,
    TCPStore,
)

from bilm.distributed.launchers import job_name
from bilm.distributed.links import own_address_towards, this_machine
from bilm.distributed.port import check_port, has_agent, port_remedy
from bilm.distributed.process import RankNumbers, rank_numbers
from bilm.errors import ConfigError, LostRankError

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.05

_NOTICE_SECONDS = 60.0  # after which rank 0 logs which ranks it is waiting for

_OPEN_SECONDS = 30.0  # rank 0 marks its store as soon as others can connect to it

_joins = itertools.count()  # of this process; each uses its own part of the store


def join_store(job: str, timeout_seconds: int) -> Store:
    """Return the part of rank 0's store that only the ranks of this job use, in this attempt.

    `job` must be the same on all ranks, and should differ between jobs.
    """
    numbers = rank_numbers()
    own: dict[str, Any] = {
        "rank": numbers.rank,
        "world": numbers.world,
        "job": f"{job_name(os.environ)}/{job}",
        "machine": this_machine()[0],
        "address": own_address_towards(os.environ["MASTER_ADDR"]),
    }
    store = _open_store(numbers, timeout_seconds)
    room = PrefixStore(f"bilm/{next(_joins)}", store)
    deadline = time.monotonic() + timeout_seconds
    try:
        name = (_admit if numbers.rank == 0 else _arrive)(room, own, deadline)
        remote = room.get(f"{name}/remote").decode()
    except (DistNetworkError, DistStoreError) as error:
        raise LostRankError(
            f"rank {numbers.rank} lost its connection to rank 0 at {_endpoint()} while the ranks "
            f"joined: {str(error).splitlines()[0]}"
        ) from None
    _choose_interface(own["address"], remote)
    return PrefixStore(name, room)


@functools.cache
def _open_store(numbers: RankNumbers, timeout_seconds: int) -> TCPStore:
    """Host or reach the store; it stays open for later runs of this process."""
    is_host = numbers.rank == 0 and not has_agent()
    try:
        return TCPStore(
            os.environ["MASTER_ADDR"],
            int(os.environ["MASTER_PORT"]),
            numbers.world,
            is_master=is_host,
            timeout=timedelta(seconds=timeout_seconds),
            wait_for_workers=False,
            multi_tenant=True,
        )
    except (DistNetworkError, DistStoreError) as error:
        check_port()  # another process may have taken it since the start
        raise LostRankError(
            f"rank {numbers.rank} could not connect to rank 0 at {_endpoint()} within "
            f"{timeout_seconds} s: {str(error).splitlines()[0]}. Check that rank 0 is running and "
            "that MASTER_ADDR and MASTER_PORT are the same on all ranks and reachable"
        ) from None


def _admit(room: Store, own: dict[str, Any], deadline: float) -> str:
    """Answer the processes that connect, until all ranks of this job have joined."""
    name = secrets.token_hex(8)
    room.set("open", name)
    answered: dict[int, int] = {}  # ranks by the number of their arrival
    missing, remote = set(range(1, own["world"])), ""
    notice = time.monotonic() + _NOTICE_SECONDS
    while missing:
        for number in range(1, room.add("arrivals", 0) + 1):
            if number not in answered and room.check([f"arrival/{number}"]):
                other = json.loads(room.get(f"arrival/{number}"))
                rejection = _reject(other, own, answered)
                answered[number] = -1 if rejection else other["rank"]
                if not rejection and not _is_loopback(other["address"]):
                    remote = other["address"]
                room.set(f"answer/{number}", json.dumps([name, rejection]))
        missing = {rank for rank in missing if not room.check([f"{name}/{rank}"])}
        now = time.monotonic()
        if missing and now > deadline:
            raise LostRankError(
                f"ranks {sorted(missing)} did not join. Check that all {own['world']} ranks were "
                f"started, and that they can reach {_endpoint()}"
            )
        if missing and now > notice:
            logger.warning("waiting for ranks %s to join at %s", sorted(missing), _endpoint())
            notice = deadline
        time.sleep(_POLL_SECONDS)
    room.set("closed", name)
    room.set(f"{name}/remote", remote)
    return name


def _choose_interface(own: str, remote: str) -> None:
    """Let gloo use the interface that leads to the other machines, unless the user has chosen one.

    By default gloo uses the address of the host name, which is often a loopback address. `remote`
    is the address of a rank on another machine than rank 0, if there is one.
    """
    if not remote or not _is_loopback(_resolve(socket.gethostname())):
        return
    import psutil  # not a requirement of `bilm evaluate` on one rank

    own = own_address_towards(remote) if _is_loopback(own) else own
    for name, addresses in psutil.net_if_addrs().items():
        if any(entry.address == own for entry in addresses):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def _resolve(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError:
        return ""


def _is_loopback(address: str) -> bool:
    return not address or address.startswith("127.") or address == "::1"


def _reject(other: dict[str, Any], own: dict[str, Any], answered: dict[int, int]) -> str:
    """Return why a process that has connected is not a rank of this job; else an empty string."""
    if (other["job"], other["world"]) != (own["job"], own["world"]):
        logger.warning(
            "rejected a process on %s that belongs to another run and uses the same port",
            other["machine"],
        )
        return (
            f"the process that listens there, on {own['machine']}, belongs to another run, or to "
            "one with another configuration or number of ranks"
        )
    # A store of torchrun may contain arrivals from before a restart.
    if not has_agent() and (other["rank"] == 0 or other["rank"] in answered.values()):
        return f"rank {other['rank']} of the run that listens there has already joined"
    return ""


def _arrive(room: Store, own: dict[str, Any], deadline: float) -> str:
    """Announce this rank, and wait for the answer of rank 0."""
    number = room.add("arrivals", 1)
    room.set(f"arrival/{number}", json.dumps(own))
    open_until = time.monotonic() + _OPEN_SECONDS
    while time.monotonic() < deadline:
        if room.check([f"answer/{number}"]):
            name, rejection = json.loads(room.get(f"answer/{number}"))
            if rejection:
                raise ConfigError(_stranger(own["rank"], rejection))
            room.set(f"{name}/{own['rank']}", "joined")
            return str(name)
        if not has_agent():
            if room.check(["closed"]):
                raise ConfigError(_stranger(own["rank"], "the run that listens there is complete"))
            if time.monotonic() > open_until and not room.check(["open"]):
                reason = "the process that listens there is not a rank of a run"
                raise ConfigError(_stranger(own["rank"], reason))
        time.sleep(_POLL_SECONDS)
    raise LostRankError(f"rank 0 at {_endpoint()} did not answer rank {own['rank']}")


def _stranger(rank: int, reason: str) -> str:
    return (
        f"rank {rank} cannot join its run at {_endpoint()}: {reason}. Probably two runs use the "
        f"same port. {port_remedy()}"
    )


def _endpoint() -> str:
    return f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
