"""Row 11: whatever stands in a file's place, nothing of it is run, and the error names it."""

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
from tests.chaos.hostile_place import SECRET, make_artefacts, make_place
from tests.chaos.table import Row, row
from tests.conftest import ROOT

TITLE = "Hostile files"
GIGABYTE = 1 << 30
MAX_SECONDS = 30
MAX_GROWTH = 256 << 20  # of memory, while a file is refused
MAX_RESIDENT = 600 << 20  # of a whole command, torch included


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("artefacts")
    make_artefacts(root)
    return root


def cases(bombs: bool) -> Iterator[Case]:
    yield from replaced_cases()
    yield from named_cases()
    yield from tensor_cases()
    yield from hdf5_cases()
    yield from archive_cases()
    yield from json_cases()
    yield from other_cases(bombs)


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """A reader that waits for a pipe, or reads a device, is stopped."""

    def stop(number: int, frame: object) -> None:
        raise TimeoutError(f"no answer in {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def peak_bytes(reset: bool = False) -> int:
    """The most memory that this process has held, since the last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) << 10


def try_case(case: Case, root: Path, artefacts: Path) -> int:
    """Let a user meet the case; returns the bytes that it took to refuse it."""
    place = make_place(root, artefacts)
    attack = case.prepare(place)
    before = peak_bytes(reset=True)
    message = None
    with time_limit(MAX_SECONDS):
        try:
            attack.act()
        except BilmError as error:
            message = str(error)
    growth = peak_bytes() - before
    place.check()
    assert growth < MAX_GROWTH, f"{growth >> 20} MiB"
    if message is None:
        assert attack.harmless, "it was accepted"
    else:
        assert attack.names in message, message
        assert SECRET not in message
        assert len(message) < 10_000, f"a message of {len(message)} characters"
    return growth


def try_all(trying: Row, todo: Iterable[Case], place: Path, artefacts: Path) -> int:
    """Try every case; returns the most memory that one took."""
    most = 0
    for case in todo:
        with trying.case(case.name):
            try:
                most = max(most, try_case(case, place / "case", artefacts))
            finally:
                shutil.rmtree(place / "case", ignore_errors=True)
    return most


# A process inherits the peak of the one that started it; one of this size stands between.
BETWEEN = """
import os, sys
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(pid, 0)
print()
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss << 10)
"""


def run_refused(arguments: list[str], named: str) -> int:
    """Run a command that must refuse its file; returns the most memory that it held."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", BETWEEN, sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=150,
        check=True,
    )
    *said, figures = done.stdout.splitlines()
    code, resident = map(int, figures.split())
    output = "\n".join(said)
    assert code == 2, f"{code}: {output}"
    assert "Traceback" not in output, output
    assert named in output, output
    assert SECRET not in output
    return resident


def nested_gigabyte(path: Path) -> Path:
    """JSON of ever deeper arrays."""
    path.unlink(missing_ok=True)
    with open(path, "wb") as file:
        for _ in range(GIGABYTE >> 24):
            file.write(b"[" * (1 << 24))
    return path


def test_hostile_files_in_short(artefacts: Path, tmp_path: Path) -> None:
    """Everything that is quick to make."""
    trying = Row(11, TITLE)
    most = try_all(trying, cases(bombs=False), tmp_path, artefacts)
    print(f"{trying.tried} cases, {most >> 20} MiB at most")
    assert trying.tried > 300
    assert not trying.fallen, "\n".join(trying.fallen)


def commands(inside: Path) -> Iterator[tuple[str, list[str], Path]]:
    """Each command of the project on a gigabyte of nested JSON; the file is put there and named."""
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
            *("-m", "data_tools.build_corpus", "--tokenizer", "whitespace"),
            *("--input", str(inside / "t.jsonl"), "--output", str(inside / "made")),
        ],
        inside / "t.jsonl",
    )
    yield (
        "published",
        [
            *("launch/convert.py", "from-published", str(inside / "published/options.json")),
            *(str(inside / "published/weights.hdf5"), str(inside / "made")),
        ],
        inside / "published/options.json",
    )
    embed = ["launch/embed.py", "--input", str(inside / "config.json"), "--output"]
    embed += [str(inside / "made.hdf5"), "--model", str(inside / "model")]
    yield "model", embed, inside / "model/config.json"
    yield "sentences", embed, inside / "config.json"
    yield (
        "checkpoint",
        [
            *("launch/export.py", str(inside / "run"), "--which", "newest"),
            *("--model", str(inside / "made")),
        ],
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
            *("-m", "downstream.predict", "--classifier", str(inside / "classifier")),
            *("--input", str(inside / "config.json"), "--format", "text"),
            *("--output", str(inside / "made.csv")),
        ],
        inside / "classifier/classifier.json",
    )


@pytest.mark.chaos
def test_hostile_files(artefacts: Path, tmp_path: Path) -> None:
    gigabyte = nested_gigabyte(tmp_path / "gigabyte.json")
    resident = {}
    with row(11, TITLE) as trying:
        most = try_all(trying, cases(bombs=True), tmp_path, artefacts)
        for name, arguments, path in commands(tmp_path / "case/inside"):
            with trying.case(f"a gigabyte of nested JSON for {name}"):
                place = make_place(tmp_path / "case", artefacts)
                path.unlink(missing_ok=True)
                os.link(gigabyte, path)
                named = path.name if name != "checkpoint" else "checkpoints"
                resident[name] = run_refused(arguments, named)
                place.check()
                assert resident[name] < MAX_RESIDENT
            shutil.rmtree(tmp_path / "case", ignore_errors=True)
        gigabyte.unlink()
        lightest = [size for name, size in resident.items() if name in ("config", "corpus")]
        trying.worst = (
            f"0 side effects; {most >> 20} MiB at most to refuse a file; a gigabyte of JSON is "
            f"refused by a process of {max(lightest, default=0) >> 20} MiB (with torch "
            f"{max(resident.values(), default=0) >> 20})"
        )
        print(trying.worst)
