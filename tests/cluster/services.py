"""The three machines of the test bed, with sshd and Slurm, and the lock that only one may take."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.cluster.machines import Machine, connect_to_switch, wait_until

ADDRESSES = {"ctl": "10.77.0.1", "n1": "10.77.0.11", "n2": "10.77.0.12"}
LOCK = Path(tempfile.gettempdir()) / "bilm-cluster.lock"
MUNGE_SOCKET = "/run/munge.socket"

_SSH = """Host *
  IdentityFile {directory}/key
  UserKnownHostsFile /dev/null
  StrictHostKeyChecking no
  LogLevel ERROR
  ConnectTimeout 5
"""

_SSHD = """HostKey {directory}/host
AuthorizedKeysFile {directory}/key.pub
PidFile /run/sshd.pid
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
"""

# A lost node is detected after 20 s, and processes are killed 10 s after SIGTERM.
_SLURM = """ClusterName=test
SlurmctldHost=ctl({ctl})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={socket},cred_expire=10
CredType=cred/munge
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=20
InactiveLimit=0
KillWait=10
MinJobAge=3000
SchedulerParameters=sched_interval=2,bf_interval=5,batch_sched_delay=0
OverTimeLimit=0
NodeName=n1 NodeAddr={n1} CPUs={cpus} State=UNKNOWN
NodeName=n2 NodeAddr={n2} CPUs={cpus} State=UNKNOWN
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


class AlreadyUp(Exception):
    """Another process has a simulated cluster."""


@dataclass(frozen=True)
class Cluster:
    """The machines `ctl`, `n1` and `n2`."""

    ctl: Machine
    n1: Machine
    n2: Machine
    directory: Path

    @property
    def machines(self) -> tuple[Machine, ...]:
        """All machines."""
        return self.ctl, self.n1, self.n2

    @property
    def nodes(self) -> tuple[Machine, ...]:
        """The machines that run jobs."""
        return self.n1, self.n2

    def start_slurmd(self, node: Machine) -> None:
        """Start the daemon that runs the jobs of Slurm on a node."""
        node.run("slurmd", "-N", node.name, env=self.slurm_environment)

    def restart_slurmd(self, node: Machine) -> None:
        """Start the daemon again, as when a node is started that was down."""
        daemons = [p for p in node.processes() if p.name() in ("slurmd", "slurmstepd")]
        for process in daemons:
            process.kill()
        psutil.wait_procs(daemons, 10)
        self.start_slurmd(node)

    def slurm(self, *command: str | Path) -> str:
        """Run a command of Slurm on `ctl` and return its output."""
        return self.ctl.run(*command, env=self.slurm_environment)

    @property
    def slurm_environment(self) -> dict[str, str]:
        """The environment of the commands of Slurm."""
        return {**os.environ, "SLURM_CONF": str(self.directory / "slurm" / "slurm.conf")}


def hosts_text() -> str:
    """Return /etc/hosts of a machine."""
    named = "".join(f"{address} {name}\n" for name, address in ADDRESSES.items())
    return f"127.0.0.1 localhost\n{named}"


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Start three machines with their services, and end all of it afterwards."""
    with ExitStack() as stack:
        stack.enter_context(_lock())
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bilm-cluster-")))
        machines = []
        for name, address in ADDRESSES.items():
            hosts = directory / f"hosts-{name}"
            hosts.write_text(hosts_text())
            machines.append(Machine(name, address, hosts))
            stack.callback(machines[-1].close)
        connect_to_switch(machines[0], machines[1:])
        ctl, n1, n2 = machines
        result = Cluster(ctl, n1, n2, directory)
        _start_ssh(result)
        _start_slurm(result)
        yield result


@contextmanager
def _lock() -> Iterator[None]:
    with LOCK.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyUp(
                f"another process has a simulated cluster on this machine (lock {LOCK}). Wait "
                "until it has ended"
            ) from None
        yield


def _start_ssh(cluster: Cluster) -> None:
    """Start sshd on the nodes; ssh and pdsh work from every machine."""
    directory = cluster.directory / "ssh"
    (directory / "etc").mkdir(parents=True)
    for name in ("key", "host"):
        make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)]
        subprocess.run(make, check=True, stdin=subprocess.DEVNULL)
    (directory / "etc" / "ssh_config").write_text(_SSH.format(directory=directory))
    (directory / "sshd.conf").write_text(_SSHD.format(directory=directory))
    for machine in cluster.machines:
        machine.run("mount", "--bind", directory / "etc", "/etc/ssh")
    for node in cluster.nodes:
        node.run("mkdir", "/run/sshd")
        log = directory / f"sshd-{node.name}.log"
        node.run("/usr/sbin/sshd", "-f", directory / "sshd.conf", "-E", log)
    wait_until(
        lambda: (
            cluster.ctl.run("pdsh", "-R", "ssh", "-w", "n1,n2", "hostname", code=None).count("n")
            == 4
        ),
        30,
        "ssh to both nodes",
    )


def _start_slurm(cluster: Cluster) -> None:
    """Start slurmctld on `ctl` and slurmd on the nodes."""
    directory = cluster.directory / "slurm"
    for name in ("state", "spool-n1", "spool-n2"):
        (directory / name).mkdir(parents=True)
    key = directory / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    values = {**ADDRESSES, "socket": MUNGE_SOCKET, "cpus": os.cpu_count(), "directory": directory}
    (directory / "slurm.conf").write_text(_SLURM.format(**values))
    # Control groups are not used, but detecting their version fails in a namespace.
    (directory / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    for machine in cluster.machines:
        files = [f"--{kind}-file=/run/munge.{kind}" for kind in ("pid", "log", "seed")]
        machine.run("munged", "--force", f"--key-file={key}", f"--socket={MUNGE_SOCKET}", *files)
    cluster.ctl.run("slurmctld", env=cluster.slurm_environment)
    for node in cluster.nodes:
        cluster.start_slurmd(node)
    wait_until(
        lambda: cluster.slurm("sinfo", "--noheader", "-o", "%t %D").split() == ["idle", "2"],
        30,
        "both nodes of Slurm",
    )
