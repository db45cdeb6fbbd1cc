"""One, two, four and eight ranks train the same model; all runs have dropout."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.launch.launching import TIMEOUT_SECONDS, TINY, assert_same_run, environment

pytestmark = [pytest.mark.slow, pytest.mark.launch]
STEPS = 4


@pytest.mark.parametrize("kind", ["sampled", "full"])
def test_ranks_train_like_one(kind: str, corpus: Path, tmp_path: Path) -> None:
    assert TINY["model"]["dropout"] > 0
    config = tmp_path / "tiny.json"
    config.write_text(json.dumps(TINY), encoding="utf-8")
    overrides = (
        f"data.corpus={corpus}",
        f"model.softmax.kind={kind}",
        f"train.max_steps={STEPS}",
        "train.evaluation.rows=8",
    )
    module = (sys.executable, "-m", "tests.launch.forked_ranks")
    done = subprocess.run(
        [*module, str(config), str(tmp_path), "1,2,4,8", *overrides],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        env=environment() | {"DS_ACCELERATOR": "cpu"},
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    for world in ("2", "4", "8"):
        assert_same_run(tmp_path / "1", tmp_path / world, STEPS, 1e-5)
