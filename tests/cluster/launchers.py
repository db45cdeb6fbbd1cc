"""Scenarios: the launchers on two machines, without faults of the network.

Each function is a row of the table. Its docstring is the title; it returns what happened and a
measured figure, or raises AssertionError.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.chaos.jobs import newest_step
from tests.cluster.jobs import (
    BIN,
    EXIT_BARRIER,
    STOP_SECONDS,
    Bed,
    Launch,
    compare,
    finish,
)
from tests.launch.launching import losses

KILLED = 128 + 9
SAVES = "train.checkpoints.every_steps=5"


def environment_only(bed: Bed) -> tuple[str, str]:
    """`RANK`, `WORLD_SIZE`, `MASTER_ADDR`, without `LOCAL_RANK`"""
    output = bed.run("environment")
    finish(bed.start_ranks(bed.script(output)))
    return "trained", compare(bed, output)


def environment_killed_rank(bed: Bed) -> tuple[str, str]:
    """the same, rank 1 killed"""
    output = bed.run("killed")
    first, second = bed.start_ranks(bed.script(output, SAVES))
    bed.wait_for_step(output)
    bed.ranks(bed.cluster.n2)[0].kill()
    finish([second], (KILLED,), STOP_SECONDS)
    seconds = finish([first], (4,), STOP_SECONDS)
    step, figures = resume(bed, output)
    return f"rank 0 exited with 4 after {seconds:.1f} s; resumed from step {step}", figures


def no_ssh(bed: Bed) -> tuple[str, str]:
    """`deepspeed` with `--no_ssh` on both machines"""
    output, launcher = bed.run("no_ssh"), bed.deepspeed("--no_ssh", "--master_addr=n1")
    launches = [
        bed.start(node, [*launcher, f"--node_rank={rank}", *bed.script(output)])
        for rank, node in enumerate(bed.cluster.nodes)
    ]
    finish(launches)
    return "trained", compare(bed, output)


def torchrun(bed: Bed) -> tuple[str, str]:
    """`torchrun` on both machines"""
    output = bed.run("torchrun")
    launches = start_torchrun(bed, bed.script(output))
    finish(launches)
    return "trained" + barrier_note(launches), compare(bed, output)


def torchrun_restart(bed: Bed) -> tuple[str, str]:
    """the same with `--max-restarts 1`, a rank killed"""
    output = bed.run("restart")
    launches = start_torchrun(bed, bed.script(output, SAVES), "--max-restarts=1")
    bed.wait_for_step(output)
    bed.ranks(bed.cluster.n2)[0].kill()
    finish(launches)
    assert "resuming" in launches[0].output(), "the run was not resumed"
    return "restarted, resumed and finished" + barrier_note(launches), compare(bed, output)


def srun(bed: Bed) -> tuple[str, str]:
    """`srun` without another launcher"""
    output = bed.run("srun")
    tasks = ["srun", "--nodes=2", "--ntasks=2", sys.executable]
    finish([bed.start(bed.cluster.ctl, [*tasks, *bed.script(output)])])
    return "trained", compare(bed, output)


def deepspeed_slurm(bed: Bed) -> tuple[str, str]:
    """`deepspeed` with `--launcher slurm`"""
    output = bed.run("deepspeed_slurm")
    launcher = bed.deepspeed("--launcher=slurm", "--launcher_args=--nodes=2 --ntasks-per-node=1")
    finish([bed.start(bed.cluster.ctl, [*launcher, *bed.script(output)])])
    return "trained", compare(bed, output)


def debian_hosts(bed: Bed) -> tuple[str, str]:
    """Debian's line `127.0.1.1 n1` in `/etc/hosts`"""
    for node in bed.cluster.nodes:
        text = node.hosts.read_text().replace(f"{node.address} {node.name}\n", "")
        node.hosts.write_text(f"127.0.1.1 {node.name}\n{text}")
    output = bed.run("debian")
    finish(bed.start_ranks(bed.script(output)))
    return "trained", compare(bed, output)


def localhost_master(bed: Bed) -> tuple[str, str]:
    """`MASTER_ADDR=localhost` on rank 0"""
    output = bed.run("localhost")
    finish(bed.start_ranks(bed.script(output), {"MASTER_ADDR": "localhost"}, {}))
    return "trained", compare(bed, output)


def same_port(bed: Bed) -> tuple[str, str]:
    """a second job on the same port"""
    one, two, port = bed.run("port_one"), bed.run("port_two"), bed.port()
    first = bed.start_ranks(bed.script(one, "train.max_steps=100000"), MASTER_PORT=port)
    bed.wait_for_step(one)
    second = bed.start_ranks(bed.script(two), MASTER_PORT=port)
    seconds = finish(second, (2,), STOP_SECONDS)
    text = "".join(launch.log.read_text() for launch in second)
    assert f"port {port}" in text, "the port is not named"
    assert not two.exists(), "the second job has written something"
    count = len(losses(one))
    bed.wait_for_step(one, count + 5)
    for rank in (*bed.ranks(bed.cluster.n1), *bed.ranks(bed.cluster.n2)):
        rank.terminate()
    finish(first, (75,), STOP_SECONDS)
    return "the second job exited with 2 on both machines; the first continued", f"{seconds:.1f} s"


def start_torchrun(bed: Bed, script: list[str], *options: str) -> list[Launch]:
    """Start torchrun with one rank on each node."""
    command = torchrun_command(bed, script, "--nnodes=2", *options)
    return [bed.start(node, command) for node in bed.cluster.nodes]


def torchrun_command(bed: Bed, script: list[str], *options: str) -> list[str]:
    """Return the command line of torchrun, which is the same on all nodes."""
    meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint=n1:{bed.port()}", f"--rdzv-id={bed.port()}"]
    return [str(BIN / "torchrun"), "--nproc-per-node=1", *meeting, *options, *script]


def barrier_note(launches: list[Launch]) -> str:
    """Return a note for the table if an agent of torchrun has logged an error of its own."""
    has_error = any(EXIT_BARRIER in launch.output() for launch in launches)
    return "; an agent of torchrun logged an error of its exit barrier" if has_error else ""


def resume(bed: Bed, output: Path) -> tuple[int, str]:
    """Resume a run on both machines; return the step it resumed from, and the final figures."""
    step = newest_step(output)
    assert step > 0, "no checkpoint was saved"
    finish(bed.start_ranks(bed.script(output)))
    return step, compare(bed, output)


SCENARIOS = (
    environment_only,
    environment_killed_rank,
    no_ssh,
    torchrun,
    torchrun_restart,
    srun,
    deepspeed_slurm,
    debian_hosts,
    localhost_master,
    same_port,
)
