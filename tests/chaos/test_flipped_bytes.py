"""Row 5: one flipped byte in each file of a checkpoint."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

import pytest

from bilm.errors import CheckpointError
from bilm.training.checkpoints import CheckpointStore
from tests.chaos.jobs import SETTINGS
from tests.chaos.results import Row, row
from tests.launch.launching import assert_same_run, build_demo_corpus, launch

pytestmark = [pytest.mark.slow, pytest.mark.launch]
STEPS = 30
TITLE = "one flipped byte in each file of a checkpoint"
TO_THE_END = f"train.max_steps={STEPS}"


def test_flipped_bytes_short(tmp_path: Path) -> None:
    with row(5, TITLE, seed=5) as results:
        corpus, output = build_demo_corpus(tmp_path), tmp_path / "a" / "run"
        launch(corpus, output, *SETTINGS, TO_THE_END, ranks=None)
        _every_file(results, output / "checkpoints", random.Random(5), flips=20)


@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_flipped_bytes(tmp_path: Path) -> None:
    with row(5, TITLE, seed=5) as results:
        corpus, rng = build_demo_corpus(tmp_path), random.Random(5)
        whole, half = tmp_path / "whole" / "run", tmp_path / "half" / "run"
        launch(corpus, whole, *SETTINGS, TO_THE_END, ranks=2)
        launch(corpus, half, *SETTINGS, "train.max_steps=20", ranks=2)
        _every_file(results, half / "checkpoints", rng, flips=200)
        newest = "step-00000020"
        for name in sorted(p.name for p in (half / "checkpoints" / newest).iterdir()):
            with results.case(f"{name}, and the run is resumed"):
                output = tmp_path / name / "run"
                shutil.copytree(half, output)
                _flip(output / "checkpoints" / newest / name, rng)
                done = launch(corpus, output, *SETTINGS, TO_THE_END, ranks=2)
                assert re.search(f"skipping damaged checkpoint: .*{newest}.*{name}", done.stderr), (
                    "not named"
                )
                assert "resuming from" in done.stderr
                assert "step-00000010" in done.stderr
                assert_same_run(whole, output, STEPS)
        results.worst += "; 5 of 5 runs resumed from the previous checkpoint, bit for bit"


def _every_file(results: Row, checkpoints: Path, rng: random.Random, flips: int) -> None:
    """Flip many bytes of each file, and open the checkpoints as a run does."""
    newest = CheckpointStore(checkpoints).newest()
    assert newest is not None
    for file in sorted(newest.path.iterdir()):
        data = file.read_bytes()
        for _ in range(flips):
            with results.case(f"a byte of {file.name}"):
                position = _flip(file, rng)
                try:
                    with pytest.raises(CheckpointError, match=file.name):
                        CheckpointStore(checkpoints).verify(newest.path)
                    before = CheckpointStore(checkpoints).newest()
                    assert before is not None, position
                    assert before.record.step < newest.record.step
                finally:
                    file.write_bytes(data)
    assert CheckpointStore(checkpoints).newest() == newest
    results.worst = "0 undetected"


def _flip(file: Path, rng: random.Random) -> int:
    data = bytearray(file.read_bytes())
    position = rng.randrange(len(data))
    data[position] ^= 1 << rng.randrange(8)
    file.write_bytes(data)
    return position
