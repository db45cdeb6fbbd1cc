"""Row 12: a hundred thousand mutated inputs; a reader may raise only a `BilmError`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.fuzz_targets import TARGETS
from tests.chaos.fuzzing import fuzz
from tests.chaos.results import Row, row
from tests.chaos.sandbox import make_artifacts
from tests.conftest import ROOT

TITLE = "fuzzing"
SEED = 20180215
# A hundred thousand in total, with fewer of the slow ones.
COUNTS = {
    "config": 40_000,
    "vocabulary": 20_000,
    "corpus": 20_000,
    "options": 4_000,
    "weights": 8_000,
    "pieces": 2_000,
    "texts": 6_000,
}
IN_CHILD = ("weights", "pieces")  # read by the C code of a library
CHILD_SECONDS = 240


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("artifacts")
    make_artifacts(root)
    return root


def fuzz_here(results: Row, name: str, count: int, artifacts: Path, work: Path) -> None:
    """Fuzz a reader in this process."""
    work.mkdir()
    target = TARGETS[name]
    for error in fuzz(target, target.make(artifacts, work), count, SEED):
        with results.case(name):
            if error is not None:
                raise error


def fuzz_in_child(results: Row, name: str, count: int, artifacts: Path, work: Path) -> None:
    """Fuzz a reader in child processes; after a crash, which is a failure, start another."""
    work.mkdir()
    seed = SEED
    while count > 0:
        command = [sys.executable, "-m", "tests.chaos.fuzzing", name, str(count), str(seed)]
        done = subprocess.Popen(
            [*command, str(artifacts), str(work)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        try:
            output, _ = done.communicate(timeout=CHILD_SECONDS)
            code = done.returncode
        except subprocess.TimeoutExpired:
            done.kill()
            output, _ = done.communicate()
            code = -signal.SIGALRM
        tried = int((work / "tried").read_text()) if (work / "tried").exists() else 0
        (work / "tried").unlink(missing_ok=True)
        assert tried > 0, f"the process for {name} made no attempt"
        *failures, last = output.splitlines() or [""]
        if code:
            failures, last = [*failures, last], ""
            crash = f"{name}: the process exited with {code} at attempt {tried} of seed {seed}"
            failures.append(json.dumps(crash))
        results.tried += tried
        results.failures += [json.loads(line) for line in failures if line]
        count -= tried
        seed += 1


def fuzz_all(results: Row, counts: dict[str, int], artifacts: Path, work: Path) -> None:
    for name, count in counts.items():
        run = fuzz_in_child if name in IN_CHILD else fuzz_here
        start = time.monotonic()
        run(results, name, count, artifacts, work / name)
        print(f"{name}: {count} inputs in {time.monotonic() - start:.0f} s")


def kinds_of(failures: list[str]) -> str:
    """Return each kind of failure with its count."""
    return "\n".join(
        f"{n} x {kind}" for kind, n in Counter(line[:150] for line in failures).most_common(30)
    )


def test_fuzzing_short(artifacts: Path, tmp_path: Path) -> None:
    """Run a hundredth of the row, in this process."""
    results = Row(12, TITLE, SEED)
    counts = {name: count // 100 for name, count in COUNTS.items() if name not in IN_CHILD}
    fuzz_all(results, counts, artifacts, tmp_path)
    assert results.tried >= sum(counts.values())
    assert not results.failures, kinds_of(results.failures)


@pytest.mark.chaos
def test_fuzzing(artifacts: Path, tmp_path: Path) -> None:
    with row(12, TITLE, SEED) as results:
        fuzz_all(results, COUNTS, artifacts, tmp_path)
        results.worst = f"{len(results.failures)} uncaught; " + ", ".join(
            f"{name} {count:,}" for name, count in COUNTS.items()
        )
        print(kinds_of(results.failures))
    assert results.tried >= 100_000
