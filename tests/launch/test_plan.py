"""The memory that `--plan` predicts, compared with that of real runs of one rank."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos import faults
from tests.conftest import ROOT
from tests.launch.launching import command_for, environment, launch

pytestmark = [pytest.mark.slow, pytest.mark.launch]

# A model whose memory is mostly that of the libraries, and two that need more for themselves.
LARGER = (
    "data.unroll_steps=20",
    "train.evaluation.rows=32",
    "train.evaluation.max_words=2000",
    "train.max_steps=3",
)
SIZES = {
    "libraries": (),
    "step": (
        "model.lstm.dim=1024",
        "model.lstm.projection_dim=128",
        "model.softmax.num_negatives=8000",
        "deepspeed.train_batch_size=96",
        *LARGER,
    ),
    "weights": (
        "model.lstm.dim=2048",
        "model.lstm.projection_dim=512",
        *LARGER,
    ),
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of 20,000 types, drawn from Zipf's law."""
    directory = tmp_path_factory.mktemp("zipf")
    rng = random.Random(0)
    words = [f"w{i}" for i in range(20_000)]
    shares = [1 / (i + 1) for i in range(len(words))]
    drawn = [*words, *rng.choices(words, shares, k=60_000)]
    lines = [" ".join(drawn[i : i + 20]) for i in range(0, len(drawn), 20)]
    (directory / "text.txt").write_text("\n".join(lines) + "\n")
    build = [
        *(sys.executable, "-m", "data_tools.build_corpus", f"--input={directory / 'text.txt'}"),
        *("--tokenizer=whitespace", "--workers=1", "--min-count=1", "--heldout=0.05"),
        f"--output={directory / 'corpus'}",
    ]
    subprocess.run(build, check=True, cwd=ROOT, capture_output=True)
    return directory / "corpus"


def planned_bytes(corpus: Path, output: Path, *overrides: str) -> float:
    """Return the memory of one rank in the output of --plan."""
    done = launch(corpus, output, "--plan", *overrides, ranks=None)
    (line,) = [line for line in done.stdout.splitlines() if re.match(r" +1 +\d", line)]
    number, unit = line.split()[2:4]
    return float(number) * {"MB": 1e6, "GB": 1e9}[unit]


# Runs a command and prints its peak memory. The peak of a child process is at least that of the
# process which starts it, so this has to be a small one. The first checkpoint is written after the
# second evaluation, so that its copies exist during a step and an evaluation.
MEASURE = """
import os, pathlib, subprocess, sys, time
from bilm.distributed.process import peak_memory_bytes
run = pathlib.Path(sys.argv[1])
process = subprocess.Popen(sys.argv[2:])
while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
    metrics = run / "metrics.jsonl"
    if metrics.exists() and metrics.read_text().count('"heldout"') >= 2:
        (run / "checkpoints.continue").touch()
    time.sleep(0.01)
_, status, usage = os.wait4(process.pid, 0)
print(peak_memory_bytes(usage))
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.parametrize("size", SIZES)
def test_planned_memory_is_close_to_that_of_run(size: str, corpus: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    every = ("train.evaluation.every_steps=1", "train.checkpoints.every_steps=1")
    overrides = (*every, "train.log.histograms_every_steps=null", *SIZES[size])
    planned = planned_bytes(corpus, run, *overrides)
    slow_disk = faults.environment(faults.build(tmp_path), run / "checkpoints", 1, "wait")
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, run, *command_for(corpus, run, *overrides, ranks=None)],
        env=environment() | slow_disk,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert planned == pytest.approx(int(done.stdout.split()[-1]), rel=0.15)


def test_plans_before_corpus_exists(tmp_path: Path) -> None:
    flags = ("--plan", "--vocabulary-size", "5000", "--words", "100000")
    done = launch(tmp_path / "missing", tmp_path / "run", *flags, ranks=None)
    assert "100,000 words in 5,000 sentences" in done.stdout
    assert "without the softmax" in done.stdout
    done = launch(tmp_path / "missing", tmp_path / "run", *flags[:3], ranks=None, code=2)
    assert "must be passed together" in done.stderr
