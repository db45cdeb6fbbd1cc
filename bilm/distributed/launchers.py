"""The launchers: what each sets in the environment, and what torch and DeepSpeed read.

`deepspeed`, `torchrun` and an operator of Kubernetes set RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT. `srun`, OpenMPI, MPICH and Intel MPI set variables of their own, which `adopt_launcher`
translates. Tasks that would each train alone are rejected. This module does not import torch.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from bilm.distributed.process import RankNumbers
from bilm.errors import ConfigError

DEFAULT_PORT = 29500  # that of torch and DeepSpeed

# The ports of Slurm jobs are below those that Linux gives to outgoing connections.
_FIRST_SLURM_PORT, _NUM_SLURM_PORTS = 12_000, 20_000

_LOOPBACK = "127.0.0.1"

_NONE, _PLAIN = "no launcher", "RANK and WORLD_SIZE"  # as launchers in messages


@dataclass(frozen=True)
class Launch:
    """The position of this process in its run, and where rank 0 is reachable."""

    launcher: str  # its name in messages
    numbers: RankNumbers
    address: str
    port: int


@dataclass(frozen=True)
class _Variables:
    """The names of the variables that a launcher sets."""

    launcher: str
    rank: str
    world: str
    local_rank: str
    local_world: str
    remedy: str  # how to pass a variable to all ranks


_OPEN_MPI = _Variables(
    "OpenMPI",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "mpirun -x {name}={value}",
)
_MPICH = _Variables(
    "MPICH",
    "PMI_RANK",
    "PMI_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "mpiexec -genv {name} {value}",
)


def adopt_launcher() -> None:
    """Set the variables that torch and DeepSpeed read and the launcher has not set.

    Nothing is set for a run of one rank. Calling this again has no effect.
    """
    launch = read_launch(os.environ)
    if launch.numbers.world == 1:
        return
    os.environ.setdefault("LOCAL_WORLD_SIZE", str(launch.numbers.local_world))
    os.environ |= {
        "RANK": str(launch.numbers.rank),
        "WORLD_SIZE": str(launch.numbers.world),
        "LOCAL_RANK": str(launch.numbers.local_rank),
        "MASTER_ADDR": launch.address,
        "MASTER_PORT": str(launch.port),
    }


def read_launch(environment: Mapping[str, str]) -> Launch:
    """Return what the launcher has set, and reject tasks that would each train alone."""
    slurm = _read_slurm(environment)
    mpi = _read_mpi(environment, _OPEN_MPI) or _read_mpi(environment, _MPICH)
    if "RANK" in environment and "WORLD_SIZE" in environment:
        launch = _read_plain(environment, slurm)
        for outer in (mpi, slurm):
            if outer is not None:
                _check_nested(launch, outer, environment)
    elif mpi is not None and slurm is not None and not _is_same_position(mpi, slurm):
        _check_nested(mpi, slurm, environment)
        launch = mpi
    else:
        launch = slurm or mpi or Launch(_NONE, RankNumbers(0, 1, 0, 1), _LOOPBACK, DEFAULT_PORT)
    _check_partly_set(launch, environment)
    if launch.numbers.world > 1 and not launch.address:
        raise ConfigError(_missing_address(launch))
    return launch


def job_name(environment: Mapping[str, str]) -> str:
    """Return the id that all processes of this job share; an empty string if there is none."""
    run = environment.get("TORCHELASTIC_RUN_ID", "none")  # the default of torchrun
    own = environment.get("BILM_JOB_ID", "" if run == "none" else run)
    return own or environment.get("SLURM_JOB_ID", "")


def first_host(hosts: str) -> str:
    """Return the first host of a list as Slurm writes it: `gpu[07-10,12],login` starts at gpu07."""
    first = re.match(r"(?:\[[^\]]*\]|[^,\[])*", hosts.strip())
    assert first is not None  # it matches an empty string
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", first[0])


def _read_plain(environment: Mapping[str, str], outer: Launch | None) -> Launch:
    """Read the variables of deepspeed, torchrun or an operator; LOCAL_RANK may be missing."""
    world = _integer(environment, "WORLD_SIZE", 1)
    rank = _integer(environment, "RANK", 0)
    if rank >= world:
        raise ConfigError(
            f"RANK is {rank}, but WORLD_SIZE is {world}. RANK must be from 0 to WORLD_SIZE - 1"
        )
    # what the variables do not contain is known if they are a copy of those of `srun`
    alone = RankNumbers(rank, world, 0, 1)
    default = Launch(_PLAIN, alone, "", DEFAULT_PORT)
    if outer is not None and outer.numbers.world == world:
        default = outer
    # DeepSpeed's launcher sets LOCAL_SIZE, and torchrun LOCAL_WORLD_SIZE
    local_size = "LOCAL_SIZE" if environment.get("LOCAL_SIZE") else "LOCAL_WORLD_SIZE"
    numbers = RankNumbers(
        rank,
        world,
        _integer(environment, "LOCAL_RANK", 0, default.numbers.local_rank),
        _integer(environment, local_size, 1, default.numbers.local_world),
    )
    address = environment.get("MASTER_ADDR") or default.address
    return Launch(_PLAIN, numbers, address, _port(environment, default.port))


def _read_mpi(environment: Mapping[str, str], names: _Variables) -> Launch | None:
    if names.rank not in environment or names.world not in environment:
        return None
    world = _integer(environment, names.world, 1)
    numbers = RankNumbers(
        _integer(environment, names.rank, 0),
        world,
        _integer(environment, names.local_rank, 0, 0),
        _integer(environment, names.local_world, 1, 1),
    )
    is_local = numbers.local_world == world
    address = environment.get("MASTER_ADDR") or (_LOOPBACK if is_local else "")
    return Launch(names.launcher, numbers, address, _port(environment, DEFAULT_PORT))


def _read_slurm(environment: Mapping[str, str]) -> Launch | None:
    """Read the variables of a task of `srun`; a batch script itself is not one."""
    # A batch script has the position of its only task, but no step.
    is_script = "SLURM_GTIDS" in environment and "SLURM_STEP_ID" not in environment
    if "SLURM_PROCID" not in environment or is_script:
        return None
    tasks = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environment else "SLURM_NTASKS"
    world = _integer(environment, tasks, 1, 1)
    local_rank = _integer(environment, "SLURM_LOCALID", 0, 0)
    numbers = RankNumbers(
        _integer(environment, "SLURM_PROCID", 0),
        world,
        local_rank,
        max(local_rank + 1, min(world, _slurm_tasks_on_node(environment))),
    )
    hosts = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "")
    address = environment.get("MASTER_ADDR") or first_host(hosts)
    job = _integer(environment, "SLURM_JOB_ID", 0, 0)
    step = re.sub(r"\D", "", environment.get("SLURM_STEP_ID", "")) or "0"
    default = _FIRST_SLURM_PORT + (17 * job + int(step)) % _NUM_SLURM_PORTS
    return Launch("srun", numbers, address, _port(environment, default))


def _slurm_tasks_on_node(environment: Mapping[str, str]) -> int:
    """Return the number of tasks on this node from a list such as `8(x3),4`; 1 if unknown."""
    text = environment.get("SLURM_STEP_TASKS_PER_NODE") or environment.get("SLURM_TASKS_PER_NODE")
    counts: list[int] = []
    for count, repeats in re.findall(r"(\d+)(?:\(x(\d+)\))?", text or ""):
        counts += [int(count)] * int(repeats or 1)
    node = _integer(environment, "SLURM_NODEID", 0, 0)
    return counts[node] if node < len(counts) else 1


def _is_same_position(one: Launch, other: Launch) -> bool:
    return (one.numbers.rank, one.numbers.world) == (other.numbers.rank, other.numbers.world)


def _check_nested(inner: Launch, outer: Launch, environment: Mapping[str, str]) -> None:
    """Reject an inner launcher if several tasks of the outer one would each start a run."""
    tasks, world = outer.numbers.world, inner.numbers.world
    # the number of launchers of this run, which deepspeed and torchrun set, respectively
    launchers = environment.get("CROSS_SIZE") or environment.get("GROUP_WORLD_SIZE")
    if launchers is not None:
        if tasks > 1 and launchers == "1":
            raise ConfigError(
                f"{outer.launcher} has started {tasks} launchers, each of which would start a run "
                "of its own. Start one launcher per machine, and let them form one run (deepspeed "
                "--hostfile hosts --no_ssh --node_rank K --master_addr HOST, or torchrun --nnodes "
                "N --rdzv-backend c10d --rdzv-endpoint HOST:PORT), or start the command with "
                f"{outer.launcher} alone"
            )
        return
    has_same_size = inner.launcher == _PLAIN and world == tasks
    if world < tasks or (has_same_size and not _is_same_position(inner, outer)):
        raise ConfigError(
            f"this process is rank {inner.numbers.rank} of {world} according to {inner.launcher}, "
            f"but task {outer.numbers.rank} of {tasks} according to {outer.launcher}. Unset RANK, "
            "WORLD_SIZE and LOCAL_RANK, or start as many tasks as ranks"
        )


def _check_partly_set(launch: Launch, environment: Mapping[str, str]) -> None:
    """Reject RANK or WORLD_SIZE if it is set alone and differs from what the launcher has set."""
    numbers = launch.numbers
    for name, value in (("RANK", numbers.rank), ("WORLD_SIZE", numbers.world)):
        if name not in environment or launch.launcher == _PLAIN:
            continue
        is_known = launch.launcher != _NONE or name == "WORLD_SIZE"
        if _integer(environment, name, 0) != value or not is_known:
            missing = "WORLD_SIZE" if name == "RANK" else "RANK"
            raise ConfigError(
                f"{name} is {environment[name]} and {missing} is not set, and according to "
                f"{launch.launcher} this process is rank {numbers.rank} of {numbers.world}. Set "
                f"RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT on all ranks, or unset {name}"
            )


def _missing_address(launch: Launch) -> str:
    remedy = "Set MASTER_ADDR to the host name of rank 0 on all ranks"
    for names in (_OPEN_MPI, _MPICH):
        if names.launcher == launch.launcher:
            example = names.remedy.format(name="MASTER_ADDR", value="HOST")
            remedy += f", for example with `{example}`"
    return (
        f"{launch.launcher}: this process is rank {launch.numbers.rank} of {launch.numbers.world}, "
        f"but the address of rank 0 is not known, so that each rank would train alone. {remedy}"
    )


def _port(environment: Mapping[str, str], default: int) -> int:
    port = _integer(environment, "MASTER_PORT", 0, default)
    if port > 65535:
        raise ConfigError(f"MASTER_PORT is {port}; it must be at most 65535")
    return port


def _integer(
    environment: Mapping[str, str], name: str, minimum: int, default: int | None = None
) -> int:
    text = environment.get(name, "").strip() or (None if default is None else str(default))
    if text is None or not text.isascii() or not text.isdigit() or int(text) < minimum:
        raise ConfigError(
            f"{name} is {environment.get(name)!r}; it must be an integer of at least {minimum}. "
            "Set it as the launcher would, or unset it"
        )
    return int(text)
