from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT


@pytest.mark.slow
@pytest.mark.launch
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("kind", ["row_ranks", "dense_ranks"])
def test_averages_equal_sums(kind: str, ranks: int) -> None:
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    name = f"tests.bilm.distributed.{kind}"
    done = subprocess.run(
        [*launcher, "--nproc-per-node", str(ranks), "-m", name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("equal") == ranks
