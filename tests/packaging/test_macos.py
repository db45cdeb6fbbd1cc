"""Commands on a system without the functions of `os` that only Linux has, such as macOS."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bilm.distributed.process import num_cores, share_cores
from tests.launch.launching import environment
from tests.packaging.cases import write_files

LINUX_ONLY = (
    "sched_getaffinity",
    "sched_setaffinity",
    "posix_fallocate",
    "posix_fadvise",
    "memfd_create",
    "pidfd_open",
    "copy_file_range",
)
RUN = f"""
import os, sys
for name in {LINUX_ONLY!r}:
    if hasattr(os, name):
        delattr(os, name)
from bilm.commands.main import run
run()
"""


def test_counts_cores_without_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")  # as torchrun does
    for name in ("OMP_NUM_THREADS", "LOCAL_SIZE"):
        monkeypatch.delenv(name, raising=False)
    share_cores()
    assert num_cores() == os.cpu_count()
    assert os.environ["OMP_NUM_THREADS"] == str(max(1, num_cores() // 2))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("files")
    write_files(directory)
    return directory


@pytest.mark.slow
@pytest.mark.launch
@pytest.mark.parametrize(
    "line",
    [
        "data build-corpus --heldout 0 --input text.txt --output built",
        "pretrain --config tiny.json train.max_steps=2",
        "embed --model run --input text.txt --output vectors.hdf5",
        "tasks baselines --which tfidf --train train.csv --test test.csv --output baselines",
    ],
)
def test_commands_run(files: Path, line: str) -> None:
    variables = {name: value for name, value in environment().items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", RUN, *line.split()],
        cwd=files,
        env=variables,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
