"""Scenarios: jobs of Slurm, submitted with `sbatch cluster/slurm.sbatch`."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from tests.chaos.jobs import last_step, newest_step
from tests.cluster.jobs import SETTINGS, STEPS, Bed, all_gone, compare, saved
from tests.cluster.launchers import SAVES
from tests.cluster.machines import wait_until
from tests.conftest import ROOT

JOB_SECONDS = 120  # a requeued job waits for about 15 s
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY")


class Job:
    """A submitted job."""

    def __init__(self, bed: Bed, output: Path, *options: str) -> None:
        self._bed, self.output = bed, output
        self.log = output.with_suffix(".slurm")
        command = ["sbatch", "--parsable", f"--output={self.log}", *options]
        script = [str(ROOT / "cluster" / "slurm.sbatch"), str(ROOT / "configs" / "demo.json")]
        paths = [f"data.corpus={bed.corpus}", f"train.output_dir={output}"]
        self.id = bed.cluster.ctl.run(
            "env", "-C", ROOT, *command, *script, *paths, *SETTINGS, SAVES, env=bed.environment()
        ).strip()

    def field(self, name: str) -> str:
        """Return a field of the job as Slurm shows it."""
        shown = self._bed.cluster.slurm("scontrol", "show", "job", "-o", self.id)
        found = re.search(rf"\b{name}=(\S*)", shown)
        return found[1] if found else ""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the batch script, as Slurm does before the time limit."""
        self._bed.cluster.slurm("scancel", "--batch", f"--signal={number.name[3:]}", self.id)

    def end(self, state: str, code: str | None, restarts: int) -> None:
        """Wait for the end of the job, and check its state, exit code and number of restarts."""
        try:
            wait_until(
                lambda: self.field("JobState") in ENDED, JOB_SECONDS, f"the end of {self.id}"
            )
        finally:
            text = self.text()
        all_gone(self._bed)
        assert "Traceback (most recent call last)" not in text, f"traceback:\n{text[-3000:]}"
        found = self.field("JobState"), self.field("ExitCode"), int(self.field("Restarts"))
        expected = state, found[1] if code is None else code, restarts
        assert found == expected, f"{found} instead of {expected}:\n{text[-3000:]}"

    def text(self) -> str:
        """Return the output of the job."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""


def sbatch(bed: Bed) -> tuple[str, str]:
    """`sbatch cluster/slurm.sbatch`"""
    job = Job(bed, bed.run("sbatch"), "--nodes=2")
    job.end("COMPLETED", "0:0", restarts=0)
    return "trained; COMPLETED 0:0", compare(bed, job.output)


def sbatch_preempted(bed: Bed) -> tuple[str, str]:
    """the same, SIGUSR1 before the time limit"""
    job = Job(bed, bed.run("sbatch_preempted"), "--nodes=2")
    bed.wait_for_step(job.output)
    job.signal(signal.SIGUSR1)
    wait_until(lambda: job.field("Restarts") == "1", 40, "the requeue")
    step = saved(job.output)
    job.end("COMPLETED", "0:0", restarts=1)
    return f"saved step {step}, requeued and resumed; COMPLETED 0:0", compare(bed, job.output)


def sbatch_early_signal(bed: Bed) -> tuple[str, str]:
    """the same, SIGUSR1 before the ranks exist"""
    job = Job(bed, bed.run("sbatch_early_signal"), "--nodes=2")
    wait_until(lambda: job.field("JobState") == "RUNNING" and job.log.exists(), 30, "the start")
    job.signal(signal.SIGUSR1)
    wait_until(lambda: job.field("Restarts") == "1", 40, "the requeue")
    step = last_step(job.output)
    job.end("COMPLETED", "0:0", restarts=1)
    return f"requeued at step {step}; COMPLETED 0:0", compare(bed, job.output)


def sbatch_cancelled(bed: Bed) -> tuple[str, str]:
    """the same, `scancel`"""
    job = Job(bed, bed.run("sbatch_cancelled"), "--nodes=2")
    bed.wait_for_step(job.output)
    bed.cluster.slurm("scancel", job.id)
    job.end("CANCELLED", None, restarts=0)
    step = saved(job.output)
    assert step < STEPS, "the run was not stopped, it finished"
    return f"saved step {step}; CANCELLED, not requeued", f"exit code {job.field('ExitCode')}"


def sbatch_killed_rank(bed: Bed) -> tuple[str, str]:
    """the same, rank 1 killed"""
    job = Job(bed, bed.run("sbatch_killed_rank"), "--nodes=2")
    bed.wait_for_step(job.output)
    bed.ranks(bed.cluster.n2)[0].kill()
    wait_until(lambda: job.field("Restarts") == "1", 60, "the requeue")
    step = newest_step(job.output)
    job.end("COMPLETED", "0:0", restarts=1)
    return f"requeued and resumed from step {step}; COMPLETED 0:0", compare(bed, job.output)


def sbatch_lost_node(bed: Bed) -> tuple[str, str]:
    """the same, a node lost"""
    job = Job(bed, bed.run("sbatch_lost_node"), "--nodes=1-2")
    bed.wait_for_step(job.output)
    assert job.field("NumNodes") == "2", "the job did not start on two nodes"
    try:
        bed.cluster.ctl.configure("ip", "link", "set", "to-n2", "down")
        wait_until(lambda: job.field("Restarts") == "1", 90, "the requeue")
        step = newest_step(job.output)
        wait_until(lambda: job.field("JobState") in ENDED, JOB_SECONDS, "the end")
        nodes = job.field("NodeList")
    finally:
        bed.cluster.ctl.configure("ip", "link", "set", "to-n2", "up")
    job.end("COMPLETED", "0:0", restarts=1)
    assert nodes == "n1", f"resumed on {nodes}"
    what = f"requeued, and resumed from step {step} on one machine; COMPLETED 0:0"
    return what, compare(bed, job.output)


SCENARIOS = (
    sbatch,
    sbatch_preempted,
    sbatch_early_signal,
    sbatch_cancelled,
    sbatch_killed_rank,
    sbatch_lost_node,
)
