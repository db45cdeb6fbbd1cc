"""Row 8: a checkpoint without one of its fields is rejected, or gives a different curve."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.results import row
from tests.conftest import ROOT
from tests.launch.launching import TINY, build_demo_corpus, environment, launch

pytestmark = [pytest.mark.slow, pytest.mark.launch, pytest.mark.chaos]
# A line of metrics covers four steps and the checkpoint is between two lines, so that the sums
# affect the curve; the best perplexity is not improved soon, so that it affects the curve too.
SETTINGS = (
    "model.dropout=0.2",
    "train.log.every_steps=4",
    "train.log.histograms_every_steps=null",
    "train.evaluation.every_steps=2",
    "train.evaluation.patience=3",
    "train.optimizer.learning_rate=2",
    "train.optimizer.decay=linear",
    "train.checkpoints.every_steps=100",
    "train.checkpoints.keep_last=1",
)


@pytest.mark.timeout(1200)
def test_every_field_matters(tmp_path: Path) -> None:
    with row(8, "a checkpoint without one of its fields") as results:
        corpus, run = build_demo_corpus(tmp_path), tmp_path / "a" / "run"
        launch(corpus, run, *SETTINGS, "train.max_steps=6", ranks=1)
        config = tmp_path / "tiny.json"
        config.write_text(json.dumps(TINY), encoding="utf-8")
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.chaos.resuming",
                str(config),
                str(run),
                str(tmp_path / "work"),
                f"data.corpus={corpus}",
                *SETTINGS,
                "train.max_steps=14",
            ],
            env=environment(),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=1000,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        unaltered, *others = [json.loads(line) for line in lines]
        assert unaltered["code"] == 0, unaltered
        rejected = 0
        for case in others:
            with results.case(case["field"]):
                if case["code"] == 3:
                    assert case["field"].startswith("zero optimizer"), case[
                        "output"
                    ]  # the run diverged
                elif case["code"] == 0:
                    same = (case["curve"], case["digest"]) == (
                        unaltered["curve"],
                        unaltered["digest"],
                    )
                    assert not same, "the run does not depend on it"
                else:
                    assert case["code"] == 2, case["output"]
                    rejected += 1
        assert results.tried > 100, results.tried
        results.worst = (
            f"{rejected} rejected, {results.passed - rejected} changed the loss curve, "
            "0 had no effect"
        )
