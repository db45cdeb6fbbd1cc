"""Run a module of the tests on every rank of a launch by torchrun.

Such a module calls `run_command(main, tear_down=False)`. Otherwise a rank can abort at exit: if a
thread of gloo still releases the tensors of the last collective, it waits for an interpreter that
is being shut down.
"""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import ROOT


def assert_equal_on_ranks(module: str, ranks: int) -> None:
    """Start `module` on the ranks; each of them must print "equal" and exit with 0."""
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    done = subprocess.run(
        [*launcher, "--nproc-per-node", str(ranks), "-m", module],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("equal") == ranks
