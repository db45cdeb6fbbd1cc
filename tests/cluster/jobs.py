"""Runs of the demo configuration on the simulated machines, and checks of their results."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.chaos.jobs import last_step, newest_step
from tests.cluster.machines import Machine, wait_until
from tests.cluster.services import Cluster, hosts_text
from tests.conftest import ROOT
from tests.launch.launching import build_demo_corpus, events, losses

BIN = Path(sys.executable).parent
SCRIPT = "launch/pretrain.py"
A_RUN = "train.output_dir="  # in the command lines of ranks and launchers
STEPS = 60  # rounding differs between numbers of ranks, and its effect grows with the steps
FAULT_STEP = 10  # at which scenarios signal, kill or disconnect
TIMEOUT_SECONDS = 15  # train.timeout_seconds
START_SECONDS = 90  # from the start of a launcher to a step, on a busy machine
STOP_SECONDS = 40  # from a signal or a fault to the exit of all processes
# After the end of a run, an agent of torchrun may exit before another one has left their barrier,
# which then logs this error with a traceback of its own, and exits with 0.
EXIT_BARRIER = "Error waiting on exit barrier"
_OF_AGENT = re.compile(r"^E\d+ .*torch/distributed/elastic/agent/server/api\.py.*$", re.MULTILINE)
SAME = 1e-5  # losses on one and on several machines
SETTINGS = (
    f"train.max_steps={STEPS}",
    "train.num_epochs=1000",
    "train.optimizer.decay=none",  # so that the losses of longer runs start with the same values
    f"train.timeout_seconds={TIMEOUT_SECONDS}",
    f"train.startup_timeout_seconds={START_SECONDS}",
    f"train.evaluation.every_steps={STEPS}",
    "train.checkpoints.every_steps=1000",
    "train.log.every_steps=1",
    "train.log.histograms_every_steps=null",
)


class Launch:
    """A launcher that runs on one machine."""

    def __init__(self, machine: Machine, command: list[str], log: Path, **variables: str) -> None:
        self.log = log
        self.process: psutil.Process | None = None  # below nsenter, on the simulated machine
        with log.open("ab") as output:
            self._outer = subprocess.Popen(
                machine.enter(*command, cwd=ROOT),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=variables,
                start_new_session=True,
            )
        wait_until(self._has_child, 10, f"the start of {command[0]}")

    def _has_child(self) -> bool:
        if self._outer.poll() is not None:
            return True
        children = psutil.Process(self._outer.pid).children()
        self.process = children[0] if children else None
        return bool(children)

    def kill(self, number: int) -> None:
        """Send a signal to the launcher."""
        assert self.process is not None
        self.process.send_signal(number)

    def kill_group(self, number: int) -> None:
        """Send a signal to the process group of the launcher, as a terminal does."""
        assert self.process is not None
        os.killpg(os.getpgid(self.process.pid), number)

    def wait(self, seconds: float) -> int:
        """Wait for the exit, and return the code as a shell shows it."""
        try:
            code = self._outer.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.log.name}: hang, no exit within {seconds:.0f} s") from None
        return code if code >= 0 else 128 - code

    def output(self) -> str:
        """Return the output, which must not contain a traceback."""
        text = self.log.read_text(errors="replace")
        checked = _OF_AGENT.sub("", text) if EXIT_BARRIER in text else text
        assert "Traceback (most recent call last)" not in checked, f"traceback:\n{text[-3000:]}"
        return text


@dataclass
class Bed:
    """What scenarios need: the machines, a corpus, and a run on one machine to compare with."""

    cluster: Cluster
    work: Path
    corpus: Path = field(init=False)
    reference: Path = field(init=False)
    _ports: itertools.count[int] = field(default_factory=lambda: itertools.count(29500))

    def __post_init__(self) -> None:
        self.corpus = build_demo_corpus(self.work / "demo", sentences=600)
        self.reference = self.work / "reference"

    def train_reference(self) -> None:
        """Train on one machine, in one process."""
        launch = self.start(self.cluster.n1, [sys.executable, *self.script(self.reference)])
        assert launch.wait(START_SECONDS) == 0, launch.log.read_text()[-2000:]

    def run(self, name: str) -> Path:
        """Return the directory of a run, which does not exist yet."""
        return self.work / name

    def script(self, output: Path, *overrides: str) -> list[str]:
        """Return the training script and its arguments."""
        config = [f"--config={ROOT / 'configs' / 'demo.json'}"]
        paths = [f"data.corpus={self.corpus}", f"train.output_dir={output}"]
        return [str(ROOT / SCRIPT), *config, *paths, *SETTINGS, *overrides]

    def start(self, machine: Machine, command: list[str], **variables: str) -> Launch:
        """Start a launcher; its output is in a file of its own."""
        log = self.work / f"{next(self._ports)}-{machine.name}.log"
        return Launch(machine, command, log, **self.environment(), **variables)

    def environment(self) -> dict[str, str]:
        """Return the environment of launchers: one thread per rank, and this checkout."""
        exported = self.work / "deepspeed_env"
        exported.write_text(f"OMP_NUM_THREADS=1\nPATH={BIN}:/usr/bin:/bin:/usr/sbin\n")
        return self.cluster.slurm_environment | {
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
            "PATH": f"{BIN}:/usr/bin:/bin:/usr/sbin:/sbin",
            "DS_ENV_FILE": str(exported),  # what deepspeed exports through pdsh
        }

    def port(self) -> str:
        """Return a port that no other run has used."""
        return str(next(self._ports))

    def hostfile(self) -> Path:
        """Write the file of hosts for deepspeed."""
        path = self.work / "hosts"
        path.write_text("".join(f"{node.name} slots=1\n" for node in self.cluster.nodes))
        return path

    def deepspeed(self, *options: str) -> list[str]:
        """Return deepspeed with its options for both nodes."""
        return [
            str(BIN / "deepspeed"),
            f"--hostfile={self.hostfile()}",
            f"--master_port={self.port()}",
            *options,
        ]

    def start_ranks(self, script: list[str], *own: dict[str, str], **shared: str) -> list[Launch]:
        """Start a rank on each node with plain variables; `own` differ between the ranks."""
        shared = {"MASTER_ADDR": "n1", "MASTER_PORT": self.port(), "WORLD_SIZE": "2"} | shared
        return [
            self.start(node, [sys.executable, *script], **{**shared, "RANK": str(rank), **extra})
            for rank, (node, extra) in enumerate(
                zip(self.cluster.nodes, own or ({}, {}), strict=True)
            )
        ]

    def ranks(self, node: Machine) -> list[psutil.Process]:
        """Return the processes of a node that train."""
        return [process for process in node.processes(A_RUN) if _is_rank(process)]

    def wait_for_step(self, output: Path, step: int = FAULT_STEP) -> None:
        """Wait until a run has logged a step."""
        wait_until(
            lambda: last_step(output) >= step, START_SECONDS, f"step {step} of {output.name}"
        )

    def wait_for_nodes(self) -> None:
        """Wait until Slurm can use both nodes; start its daemon again where it has given up."""
        state = ["sinfo", "--noheader", "-o", "%t"]
        for node in self.cluster.nodes:
            found = self.cluster.slurm(*state, f"--nodes={node.name}")
            if found.startswith("down") or "*" in found:  # the node does not respond
                self.cluster.restart_slurmd(node)
        wait_until(lambda: self.cluster.slurm(*state).split() == ["idle"], 60, "idle nodes")

    def clean_up(self) -> list[str]:
        """Kill what a scenario has left running on the machines, and return its command lines."""
        if self.cluster.slurm("squeue", "--noheader"):
            self.cluster.slurm("scancel", "--user=root")
        self.wait_for_nodes()
        services = ("sshd", "slurmctld", "slurmscriptd", "slurmd", "munged", "bash", "sleep")
        left = [
            process
            for machine in self.cluster.machines
            for process in machine.processes()
            if process.pid != machine.init.pid and _name(process) not in services
        ]
        lines = []
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                lines.append(" ".join(process.cmdline())[:120])
                process.kill()
        psutil.wait_procs(left, 10)
        for machine in self.cluster.machines:
            machine.hosts.write_text(hosts_text())
        return lines


def _is_rank(process: psutil.Process) -> bool:
    """Return whether Python itself trains, and does not run a launcher."""
    try:
        words = [word for word in process.cmdline() if word != "-u"]
    except psutil.Error:
        return False
    is_training = words[1].endswith(SCRIPT) or words[1:3] == ["-m", "bilm.commands.pretrain"]
    return "python" in words[0] and is_training


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.Error:
        return "bash"


def finish(launches: list[Launch], codes: tuple[int, ...] = (0,), seconds: float = 120) -> float:
    """Wait for all launchers, and check exit codes and outputs; return the seconds waited."""
    start = time.monotonic()
    for launch in launches:
        code = launch.wait(max(1.0, seconds - (time.monotonic() - start)))
        text = launch.output()
        assert code in codes, f"exit code {code} instead of {codes}:\n{text[-3000:]}"
    return time.monotonic() - start


def difference(bed: Bed, output: Path) -> float:
    """Return the greatest difference from the losses on one machine; check that all are there."""
    expected, found = losses(bed.reference), losses(output)
    assert len(found) == STEPS, f"{len(found)} steps instead of {STEPS}"
    greatest = max(
        abs(a - b) for x, y in zip(expected, found, strict=True) for a, b in zip(x, y, strict=True)
    )
    assert greatest <= SAME, f"losses differ by {greatest:.1e} from those on one machine"
    return greatest


def same_perplexity(bed: Bed, output: Path) -> str:
    """Check the held-out perplexity at the end against that on one machine, and return it."""
    one, other = (
        {line["step"]: line["perplexity"] for line in events(run, "heldout")}[STEPS]
        for run in (bed.reference, output)
    )
    assert abs(one - other) <= 1e-4 * one, f"perplexity {other} instead of {one}"
    return f"{other:.4f}"


def compare(bed: Bed, output: Path) -> str:
    """Compare a finished run with the one on one machine; return the figures."""
    greatest = difference(bed, output)
    return f"losses within {greatest:.1e}, perplexity {same_perplexity(bed, output)}"


def saved(output: Path) -> int:
    """Check that the last step is in a checkpoint, and return its number."""
    step = newest_step(output)
    assert step == last_step(output) > 0, f"checkpoint of step {step}, logged {last_step(output)}"
    return step


def all_gone(bed: Bed, seconds: float = STOP_SECONDS) -> float:
    """Wait until no process of a run is left on any machine; return the seconds waited."""
    return wait_until(
        lambda: not any(machine.processes(A_RUN) for machine in bed.cluster.machines),
        seconds,
        "the exit of all processes",
    )
