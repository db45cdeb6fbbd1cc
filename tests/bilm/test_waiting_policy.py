"""How the threads of OpenMP wait in programs that use `bilm` and `downstream` as libraries."""

from __future__ import annotations

import pytest

from tests.bilm.distributed.test_process import run

# Stores how OpenMP would wait at each attempt to import torch, and rejects it.
FINDER = """
import importlib, os, sys
seen = []
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            seen.append(os.environ.get("GOMP_SPINCOUNT"))
            raise ImportError(name)
sys.meta_path.insert(0, Finder())
"""

NAMES = """
package = importlib.import_module(sys.argv[1])
given = os.environ.get("GOMP_SPINCOUNT")
for name in package.__all__:
    os.environ.pop("GOMP_SPINCOUNT", None)
    if given is not None:
        os.environ["GOMP_SPINCOUNT"] = given
    try:
        getattr(package, name)
    except ImportError:
        pass
    for module in [m for m in sys.modules if m.startswith(sys.argv[1] + ".")]:
        del sys.modules[module]
print(len(seen), *sorted({str(value) for value in seen}))
"""

PARITY = """
from bilm.commands.main import main
sys.argv = ["bilm", "parity", "--help"]
try:
    main()
except ImportError:
    print(*seen)
"""

# Prints the settings that OpenMP has read from the environment.
REAL_IMPORT = """
import os, sys
os.dup2(1, 2)  # OpenMP prints to stderr
import bilm
assert "torch" not in sys.modules
bilm.ScalarMix
"""


@pytest.mark.parametrize(("package", "num_names"), [("bilm", 5), ("downstream", 3)])
def test_is_set_before_torch_is_imported(package: str, num_names: int) -> None:
    count, *values = run(FINDER + NAMES, package).split()
    assert values == ["100"]
    assert int(count) >= num_names


def test_setting_of_the_user_is_kept() -> None:
    assert run(FINDER + NAMES, "bilm", GOMP_SPINCOUNT="7").split()[1:] == ["7"]
    assert run(FINDER + NAMES, "downstream", OMP_WAIT_POLICY="active").split()[1:] == ["None"]


def test_is_set_for_commands_that_import_torch_at_once() -> None:
    assert run(FINDER + PARITY) == "100"


def test_openmp_reads_it() -> None:
    printed = run(REAL_IMPORT, OMP_DISPLAY_ENV="verbose")
    if "GOMP_SPINCOUNT" not in printed:
        pytest.skip("torch does not use the OpenMP of GNU")
    assert "GOMP_SPINCOUNT = '100'" in printed


def test_import_alone_changes_nothing() -> None:
    code = "import os, bilm, downstream; print(os.environ.get('GOMP_SPINCOUNT'))"
    assert run(code) == "None"
