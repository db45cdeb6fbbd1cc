"""Row 11: hostile files are rejected without side effects, and the error names the file."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bilm.errors import BilmError
from tests.chaos.hostile_files import Case, named_cases, replaced_cases
from tests.chaos.hostile_formats import archive_cases, hdf5_cases, tensor_cases
from tests.chaos.hostile_json import json_cases, other_cases
from tests.chaos.results import Row, row
from tests.chaos.sandbox import SECRET, make_artifacts, make_sandbox
from tests.conftest import ROOT

TITLE = "hostile files in place of every file"
GIGABYTE = 1 << 30
MAX_SECONDS = 30
MAX_GROWTH = 256 << 20  # of memory, while a file is rejected
MAX_RESIDENT = 600 << 20  # memory of a command, including torch


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("artifacts")
    make_artifacts(root)
    return root


def cases(bombs: bool) -> Iterator[Case]:
    """Yield all cases; those with large files only with `bombs`."""
    yield from replaced_cases()
    yield from named_cases()
    yield from tensor_cases()
    yield from hdf5_cases()
    yield from archive_cases()
    yield from json_cases()
    yield from other_cases(bombs)


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in a block that waits for a pipe or reads an endless device."""

    def stop(number: int, frame: object) -> None:
        raise TimeoutError(f"not finished within {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def peak_since_reset(reset: bool = False) -> int:
    """Return the peak memory of this process since the last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) << 10


def run_case(case: Case, root: Path, artifacts: Path) -> int:
    """Run a case and check the error; return the growth of memory in bytes."""
    sandbox = make_sandbox(root, artifacts)
    attack = case.prepare(sandbox)
    before = peak_since_reset(reset=True)
    message = None
    with time_limit(MAX_SECONDS):
        try:
            attack.action()
        except BilmError as error:
            message = str(error)
    growth = peak_since_reset() - before
    sandbox.check()
    assert growth < MAX_GROWTH, f"{growth >> 20} MiB"
    if message is None:
        assert attack.harmless, "it was accepted"
    else:
        assert attack.name in message, message
        assert SECRET not in message
        assert len(message) < 10_000, f"the message has {len(message)} characters"
    return growth


def run_all(results: Row, todo: Iterable[Case], sandbox: Path, artifacts: Path) -> int:
    """Run every case; return the largest growth of memory."""
    most = 0
    for case in todo:
        with results.case(case.name):
            try:
                most = max(most, run_case(case, sandbox / "case", artifacts))
            finally:
                shutil.rmtree(sandbox / "case", ignore_errors=True)
    return most


# A process inherits the peak memory of its parent, so a small process starts the command.
SMALL_PARENT = """
import os, sys
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(pid, 0)
print()
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss << 10)
"""


def run_rejected(arguments: list[str], named: str) -> int:
    """Run a command that must reject its file; return its peak memory."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", SMALL_PARENT, sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=150,
        check=True,
    )
    *lines, figures = done.stdout.splitlines()
    code, resident = map(int, figures.split())
    output = "\n".join(lines)
    assert code == 2, f"{code}: {output}"
    assert "Traceback" not in output, output
    assert named in output, output
    assert SECRET not in output
    return resident


def nested_gigabyte(path: Path) -> Path:
    """Write a gigabyte of nested JSON arrays."""
    path.unlink(missing_ok=True)
    with open(path, "wb") as file:
        for _ in range(GIGABYTE >> 24):
            file.write(b"[" * (1 << 24))
    return path


def test_hostile_files_short(artifacts: Path, tmp_path: Path) -> None:
    """Run the cases without large files."""
    results = Row(11, TITLE)
    most = run_all(results, cases(bombs=False), tmp_path, artifacts)
    print(f"{results.tried} cases, {most >> 20} MiB at most")
    assert results.tried > 300
    assert not results.failures, "\n".join(results.failures)


def commands(inside: Path) -> Iterator[tuple[str, list[str], Path]]:
    """Yield the name and arguments of each command, and the file that is replaced."""
    yield (
        "config",
        ["-m", "bilm.commands.config", str(inside / "config.json")],
        inside / "config.json",
    )
    yield (
        "corpus",
        ["-m", "data_tools.inspect_corpus", str(inside / "corpus")],
        inside / "corpus/corpus.json",
    )
    yield (
        "text",
        [
            "-m",
            "data_tools.build_corpus",
            "--tokenizer=whitespace",
            f"--input={inside / 't.jsonl'}",
            f"--output={inside / 'made'}",
        ],
        inside / "t.jsonl",
    )
    yield (
        "published",
        [
            "launch/convert.py",
            "from-published",
            str(inside / "published/options.json"),
            str(inside / "published/weights.hdf5"),
            str(inside / "made"),
        ],
        inside / "published/options.json",
    )
    embed = ["launch/embed.py", "--input", str(inside / "config.json"), "--output"]
    embed += [str(inside / "made.hdf5"), "--model", str(inside / "model")]
    yield "model", embed, inside / "model/config.json"
    yield "sentences", embed, inside / "config.json"
    yield (
        "checkpoint",
        ["launch/export.py", str(inside / "run"), "--which=newest", f"--model={inside / 'made'}"],
        inside / "run/checkpoints/step-00000001/run.json",
    )
    yield (
        "training",
        ["launch/pretrain.py", "--config", str(inside / "config.json")],
        inside / "config.json",
    )
    yield (
        "classifier",
        [
            "-m",
            "downstream.predict",
            f"--classifier={inside / 'classifier'}",
            f"--input={inside / 'config.json'}",
            "--format=text",
            f"--output={inside / 'made.csv'}",
        ],
        inside / "classifier/classifier.json",
    )


@pytest.mark.chaos
def test_hostile_files(artifacts: Path, tmp_path: Path) -> None:
    gigabyte = nested_gigabyte(tmp_path / "gigabyte.json")
    resident = {}
    with row(11, TITLE) as results:
        most = run_all(results, cases(bombs=True), tmp_path, artifacts)
        for name, arguments, path in commands(tmp_path / "case/inside"):
            with results.case(f"a gigabyte of nested JSON for {name}"):
                sandbox = make_sandbox(tmp_path / "case", artifacts)
                path.unlink(missing_ok=True)
                os.link(gigabyte, path)
                named = path.name if name != "checkpoint" else "checkpoints"
                resident[name] = run_rejected(arguments, named)
                sandbox.check()
                assert resident[name] < MAX_RESIDENT
            shutil.rmtree(tmp_path / "case", ignore_errors=True)
        gigabyte.unlink()
        lightest = [size for name, size in resident.items() if name in ("config", "corpus")]
        results.worst = (
            f"0 side effects; {most >> 20} MiB at most to reject a file; a gigabyte of JSON is "
            f"rejected by a process of {max(lightest, default=0) >> 20} MiB "
            f"({max(resident.values(), default=0) >> 20} MiB with torch)"
        )
        print(results.worst)
