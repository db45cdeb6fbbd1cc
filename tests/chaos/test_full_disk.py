"""Row 6: a full disk while writing a checkpoint, the metrics, a corpus or vectors."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bilm.errors import STOPPED_EXIT_CODE
from bilm.training.checkpoints import CheckpointStore
from tests.chaos.jobs import last_step
from tests.chaos.results import row
from tests.conftest import ROOT
from tests.launch.launching import (
    build_demo_corpus,
    command_for,
    environment,
    events,
    launch,
    ranks_of,
    start,
    tree_of,
    wait_for_step,
)

pytestmark = [pytest.mark.slow, pytest.mark.launch, pytest.mark.chaos]
NEEDED = re.compile(r"[\d,]+ bytes (are )?needed(,| and) [\d,]+ (bytes|are) free")
NO_HISTOGRAMS = "train.log.histograms_every_steps=null"


@contextmanager
def small_disk(directory: Path, kib: int) -> Iterator[Path]:
    """Mount a file system of this size; skip the test where mounting is not permitted."""
    directory.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(directory)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting is not permitted")
    try:
        yield directory
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def fill(disk: Path, leave: int) -> Path:
    """Fill a disk except for `leave` bytes."""
    ballast = disk / "ballast"
    with ballast.open("wb") as file:
        file.write(b"\0" * max(0, shutil.disk_usage(disk).free - leave))
    return ballast


def fails(command: list[str]) -> str:
    """Run a command that must fail with the bytes needed and free; return its error."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=180, env=environment(), cwd=ROOT
    )
    assert done.returncode == 2, done.stderr[-3000:]
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr[-3000:]
    assert NEEDED.search(errors[0]), errors[0]
    return errors[0]


@pytest.mark.timeout(900)
def test_full_disk(tmp_path: Path) -> None:
    with row(6, "full disk while writing a checkpoint, metrics, a corpus or vectors") as results:
        corpus = build_demo_corpus(tmp_path)
        text = tmp_path / "text" / "train.txt"
        model = tmp_path / "m" / "run"
        launch(corpus, model, "train.max_steps=4", NO_HISTOGRAMS, ranks=None)
        with results.case("a checkpoint"), small_disk(tmp_path / "disk1", 1000) as disk:
            output = disk / "run"
            launch(corpus, output, "train.max_steps=4", NO_HISTOGRAMS, ranks=None)
            fill(disk, leave=60_000)
            more = command_for(corpus, output, "train.max_steps=12", NO_HISTOGRAMS, ranks=2)
            assert "step-00000008" in fails([*more, "train.evaluation.every_steps=100"])
            _check_intact(output, 4)
        with results.case("more checkpoints"), small_disk(tmp_path / "disk5", 20_000) as disk:
            _continue_without_checkpoint(corpus, disk)
        with results.case("the metrics"), small_disk(tmp_path / "disk2", 1000) as disk:
            output = disk / "run"
            launch(corpus, output, "train.max_steps=4", NO_HISTOGRAMS, ranks=None)
            ballast = fill(disk, leave=24_576)
            rare = ("train.checkpoints.every_steps=5000", "train.evaluation.every_steps=5000")
            more = command_for(
                corpus, output, "train.max_steps=5000", NO_HISTOGRAMS, *rare, ranks=2
            )
            assert "metrics.jsonl" in fails(more)
            _check_intact(output, 4)
            ballast.unlink()
            launch(corpus, output, "train.max_steps=8", NO_HISTOGRAMS, ranks=None)
            assert [e["step"] for e in events(output, "train")] == list(range(1, 9))
        with results.case("building a corpus"), small_disk(tmp_path / "disk3", 40) as disk:
            (disk / "other").write_text("unrelated")
            command = [sys.executable, "-m", "data_tools.build_corpus", f"--input={text}"]
            command += ["--tokenizer=whitespace", "--workers=1", "--heldout=0"]
            assert "corpus" in fails([*command, f"--output={disk / 'corpus'}"])
            assert [p.name for p in disk.iterdir()] == ["other"]
            assert (disk / "other").read_text() == "unrelated"
        with results.case("vectors"), small_disk(tmp_path / "disk4", 3000) as disk:
            output = disk / "vectors.hdf5"
            script = [sys.executable, str(ROOT / "launch" / "embed.py"), "--model", str(model)]
            command = [*script, "--input", str(text), "--output", str(output)]
            assert "vectors.hdf5" in fails(command)
            assert not output.exists()
            parts = sorted(p.name for p in (disk / "vectors.hdf5.partial").iterdir())
            assert all(not name.startswith(".part") for name in parts), parts
        results.worst = (
            "errors state the bytes needed and free; earlier files intact; no temporary files"
        )


def _continue_without_checkpoint(corpus: Path, disk: Path) -> None:
    """Fill the disk during two saves of a run, which continues and saves when there is space."""
    output = disk / "run"
    settings = ("train.checkpoints.on_error=continue", "model.lstm.dim=512", NO_HISTOGRAMS)
    launch(corpus, output, *settings, "train.max_steps=4", ranks=None)
    ballast = fill(disk, leave=1_000_000)  # enough for metrics
    rare = ("train.max_steps=100000", "train.evaluation.every_steps=100000")
    process = start(corpus, output, *settings, *rare, ranks=2)
    wait_for_step(output, 14)
    _check_intact(output, 4)
    ballast.unlink()
    wait_for_step(output, last_step(output) + 8)
    for rank in ranks_of(tree_of(process)):
        rank.terminate()
    assert process.wait(timeout=60) == STOPPED_EXIT_CODE
    log = output.with_suffix(".log").read_text()
    assert "step 8 was not saved: no space left" in log
    assert "Traceback" not in log
    _check_intact(output, last_step(output))


def _check_intact(output: Path, step: int) -> None:
    """Check that the checkpoint of `step` is the latest, and that there are no temporary files."""
    newest = CheckpointStore(output / "checkpoints").newest()
    assert newest is not None
    assert newest.record.step == step
    assert not list((output / "checkpoints").glob(".*"))
    assert not list(output.glob(".*"))
