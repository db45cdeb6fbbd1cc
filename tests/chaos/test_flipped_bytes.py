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
from tests.chaos.table import Row, row
from tests.launch.launching import assert_same_run, build_demo_corpus, launch

pytestmark = [pytest.mark.slow, pytest.mark.launch]
STEPS = 30
TITLE = "one flipped byte in each file of a checkpoint"
WHOLE = f"train.max_steps={STEPS}"


def test_some_flipped_bytes(tmp_path: Path) -> None:
    with row(5, TITLE, seed=5) as trying:
        corpus, output = build_demo_corpus(tmp_path), tmp_path / "a" / "run"
        launch(corpus, output, *SETTINGS, WHOLE, ranks=None)
        _every_file(trying, output / "checkpoints", random.Random(5), places=20)


@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_flipped_bytes(tmp_path: Path) -> None:
    with row(5, TITLE, seed=5) as trying:
        corpus, rng = build_demo_corpus(tmp_path), random.Random(5)
        whole, half = tmp_path / "whole" / "run", tmp_path / "half" / "run"
        launch(corpus, whole, *SETTINGS, WHOLE, ranks=2)
        launch(corpus, half, *SETTINGS, "train.max_steps=20", ranks=2)
        _every_file(trying, half / "checkpoints", rng, places=200)
        newest = "step-00000020"
        for name in sorted(p.name for p in (half / "checkpoints" / newest).iterdir()):
            with trying.case(f"{name}, and the run goes on"):
                output = tmp_path / name / "run"
                shutil.copytree(half, output)
                _flip(output / "checkpoints" / newest / name, rng)
                done = launch(corpus, output, *SETTINGS, WHOLE, ranks=2)
                assert re.search(f"passed over: .*{newest}.*{name}", done.stderr), "not named"
                assert "resuming from" in done.stderr
                assert "step-00000010" in done.stderr
                assert_same_run(whole, output, STEPS)
        trying.worst += "; 5 of 5 runs went on from the one before, bit for bit"


def _every_file(trying: Row, checkpoints: Path, rng: random.Random, places: int) -> None:
    """Many places in each file, as a run that starts sees them."""
    newest = CheckpointStore(checkpoints).newest()
    assert newest is not None
    for file in sorted(newest.path.iterdir()):
        data = file.read_bytes()
        for _ in range(places):
            with trying.case(f"{file.name}, somewhere"):
                place = _flip(file, rng)
                try:
                    with pytest.raises(CheckpointError, match=file.name):
                        CheckpointStore(checkpoints).verify(newest.path)
                    before = CheckpointStore(checkpoints).newest()
                    assert before is not None, place
                    assert before.step < newest.step
                finally:
                    file.write_bytes(data)
    assert CheckpointStore(checkpoints).newest() == newest
    trying.worst = "0 unseen"


def _flip(file: Path, rng: random.Random) -> int:
    data = bytearray(file.read_bytes())
    place = rng.randrange(len(data))
    data[place] ^= 1 << rng.randrange(8)
    file.write_bytes(data)
    return place
