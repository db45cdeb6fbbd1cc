"""One, two, four and eight ranks train the same model; all runs have dropout."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.launch.forking import train_forked
from tests.launch.launching import TINY, assert_same_run

pytestmark = [pytest.mark.slow, pytest.mark.launch]
STEPS = 4


@pytest.mark.parametrize("kind", ["sampled", "full"])
def test_ranks_train_like_one(kind: str, corpus: Path, tmp_path: Path) -> None:
    assert TINY["model"]["dropout"] > 0
    overrides = (f"model.softmax.kind={kind}", f"train.max_steps={STEPS}")
    for ranks in (1, 2, 4, 8):
        run = tmp_path / str(ranks)
        train_forked(corpus, run, *overrides, "train.evaluation.rows=8", ranks=ranks)
        assert_same_run(tmp_path / "1", run, STEPS, 1e-5)
