"""Embedding with several ranks: the same output as with one, lost ranks, and errors."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from bilm.errors import LOST_RANK_EXIT_CODE, USER_ERROR_EXIT_CODE
from bilm.model.language_model import BiLm
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.tokenizers import WhitespaceTokenizer
from tests.conftest import ROOT, tiny_model_config
from tests.launch.launching import (
    STARTED,
    TIMEOUT_SECONDS,
    deepspeed,
    environment,
    free_port,
)

pytestmark = pytest.mark.launch
SCRIPT = str(ROOT / "launch" / "embed.py")
Job = list[str]  # the arguments but --output


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A tiny model, and a text of ten windows, of which eight determine the pinned words."""
    directory = tmp_path_factory.mktemp("job")
    torch.manual_seed(0)
    bilm = BiLm(tiny_model_config(), None)
    PretrainedBiLm(bilm, None, WhitespaceTokenizer()).save_pretrained(directory / "model")
    rng = random.Random(1)
    with open(directory / "text.txt", "w", encoding="utf-8") as file:
        for _ in range(13_000):
            words = (f"w{int(20_000 * rng.random() ** 3)}" for _ in range(rng.randrange(45)))
            file.write(" ".join(words) + "\n")
    model, text = directory / "model", directory / "text.txt"
    return ["--model", str(model), "--input", str(text), "--pool", "mean"]


@pytest.fixture(scope="module")
def reference(job: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a process without a launcher."""
    output = tmp_path_factory.mktemp("reference") / "out.hdf5"
    run([sys.executable, SCRIPT], job, output)
    return output


def run(program: list[str], job: Job, output: Path) -> str:
    done = subprocess.run(
        [*program, *job, "--output", str(output)],
        capture_output=True,
        text=True,
        env=environment(),
        cwd=ROOT,
        timeout=TIMEOUT_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def start_ranks(world: int, job: Job, output: Path) -> list[subprocess.Popen[str]]:
    """Start ranks without a launcher, as on machines with one rank each."""
    variables = {
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    processes = [
        subprocess.Popen(
            [sys.executable, SCRIPT, *job, "--output", str(output)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment() | variables | {"RANK": str(rank), "LOCAL_RANK": "0"},
            cwd=ROOT,
        )
        for rank in range(world)
    ]
    STARTED.extend(processes)
    return processes


def finish(processes: list[subprocess.Popen[str]]) -> tuple[list[int], list[str]]:
    """Wait for all ranks; return their exit codes and error output."""
    errors = [process.communicate(timeout=TIMEOUT_SECONDS)[1] for process in processes]
    return [process.returncode for process in processes], errors


def assert_same_contents(output: Path, reference: Path) -> None:
    with h5py.File(output) as one, h5py.File(reference) as other:
        assert one.keys() == other.keys()
        assert dict(one.attrs) == dict(other.attrs)
        assert len(one) == 13_001
        for name in one:
            assert dict(one[name].attrs) == dict(other[name].attrs)
            np.testing.assert_array_equal(one[name][()], other[name][()])
    assert [path.name for path in output.parent.iterdir()] == [output.name]


def test_two_ranks_of_deepspeed_write_the_same_file(
    job: Job, reference: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.hdf5"
    log = run([*deepspeed(2), SCRIPT], job, output)
    assert log.count(f"wrote {output}: 13,000 sentences") == 1
    assert_same_contents(output, reference)


def test_four_ranks_without_launcher_write_the_same_file(
    job: Job, reference: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.hdf5"
    codes, errors = finish(start_ranks(4, job, output))
    assert codes == [0, 0, 0, 0], errors
    assert_same_contents(output, reference)


def test_reports_killed_rank_and_resumes_with_another_number(
    job: Job, reference: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.hdf5"
    partial = tmp_path / "out.hdf5.partial"
    ranks = start_ranks(2, job, output)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not (partial / "part-00000001.safetensors").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    ranks[1].kill()
    codes, errors = finish(ranks)
    assert codes[0] == LOST_RANK_EXIT_CODE, errors
    assert f"rank 1 (process {ranks[1].pid} on " in errors[0]
    assert "Traceback" not in errors[0]
    assert not output.exists()
    assert (partial / "part-00000000.safetensors").exists()
    (partial / "part-00000000.safetensors").unlink()  # as if rank 0 had been killed earlier
    log = run([sys.executable, SCRIPT], job, output)
    assert "resuming at line 0\n" in log
    assert_same_contents(output, reference)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input", "/nowhere.txt"], "error: --input /nowhere.txt does not exist"),
        (["--layers", "mix:1,2"], "2 weights; this model has 3 layers"),
    ],
)
def test_reports_error_once(job: Job, tmp_path: Path, arguments: list[str], message: str) -> None:
    codes, errors = finish(start_ranks(2, [*job, *arguments], tmp_path / "out.hdf5"))
    assert codes == [USER_ERROR_EXIT_CODE] * 2
    assert message in errors[0]
    assert "error" not in errors[1]
    assert not list(tmp_path.iterdir())
