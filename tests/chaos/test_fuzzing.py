"""Row 12: a hundred thousand mutated inputs, and nothing but our own errors leaves a reader."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.fuzzing import TARGETS, fuzz
from tests.chaos.hostile_place import make_artefacts
from tests.chaos.table import Row, row
from tests.conftest import ROOT

TITLE = "Fuzzing"
SEED = 20180215
# A hundred thousand in all; the dear ones fewer.
COUNTS = {
    **{"config": 40_000, "vocabulary": 20_000, "corpus": 20_000, "options": 4_000},
    **{"weights": 8_000, "pieces": 2_000, "texts": 6_000},
}
IN_CHILD = ("weights", "pieces")  # a library's own C code reads these
CHILD_SECONDS = 240


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("artefacts")
    make_artefacts(root)
    return root


def fuzz_here(trying: Row, name: str, count: int, artefacts: Path, work: Path) -> None:
    """Fuzz a reader in this process."""
    work.mkdir()
    target = TARGETS[name]
    for error in fuzz(target, target.make(artefacts, work), count, SEED):
        with trying.case(name):
            if error is not None:
                raise error


def fuzz_in_child(trying: Row, name: str, count: int, artefacts: Path, work: Path) -> None:
    """Fuzz a reader in processes of its own: one that dies is a case, and the next goes on."""
    work.mkdir()
    seed = SEED
    while count > 0:
        command = [sys.executable, "-m", "tests.chaos.fuzzing", name, str(count), str(seed)]
        done = subprocess.Popen(
            [*command, str(artefacts), str(work)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        try:
            said, _ = done.communicate(timeout=CHILD_SECONDS)
            ending = done.returncode
        except subprocess.TimeoutExpired:
            done.kill()
            said, _ = done.communicate()
            ending = -signal.SIGALRM
        tried = int((work / "tried").read_text()) if (work / "tried").exists() else 0
        (work / "tried").unlink(missing_ok=True)
        assert tried > 0, f"the process for {name} tried nothing"
        *fallen, last = said.splitlines() or [""]
        if ending:
            fallen, last = [*fallen, last], ""
            died = f"{name}: the process ended with {ending} at attempt {tried} of seed {seed}"
            fallen.append(json.dumps(died))
        trying.tried += tried
        trying.fallen += [json.loads(line) for line in fallen if line]
        count -= tried
        seed += 1


def fuzz_all(trying: Row, counts: dict[str, int], artefacts: Path, work: Path) -> None:
    for name, count in counts.items():
        run = fuzz_in_child if name in IN_CHILD else fuzz_here
        start = time.monotonic()
        run(trying, name, count, artefacts, work / name)
        print(f"{name}: {count} inputs in {time.monotonic() - start:.0f} s")


def kinds_of(fallen: list[str]) -> str:
    """Each kind of failure once, with its number."""
    return "\n".join(
        f"{n} x {kind}" for kind, n in Counter(line[:150] for line in fallen).most_common(30)
    )


def test_fuzzing_in_short(artefacts: Path, tmp_path: Path) -> None:
    """A hundredth of the whole row, in this process."""
    trying = Row(12, TITLE, SEED)
    counts = {name: count // 100 for name, count in COUNTS.items() if name not in IN_CHILD}
    fuzz_all(trying, counts, artefacts, tmp_path)
    assert trying.tried >= sum(counts.values())
    assert not trying.fallen, kinds_of(trying.fallen)


@pytest.mark.chaos
def test_fuzzing(artefacts: Path, tmp_path: Path) -> None:
    with row(12, TITLE, SEED) as trying:
        fuzz_all(trying, COUNTS, artefacts, tmp_path)
        trying.worst = f"{len(trying.fallen)} uncaught; " + ", ".join(
            f"{name} {count:,}" for name, count in COUNTS.items()
        )
        print(kinds_of(trying.fallen))
    assert trying.tried >= 100_000
