from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT


@pytest.mark.parametrize(
    "name", ["layers", "penalty", "sample_efficiency", "probe", "neighbours", "senses"]
)
def test_help_does_not_import_large_libraries(name: str) -> None:
    code = (
        "import sys\n"
        f"from downstream.analyses.{name} import main\n"
        "try: main(['--help'])\n"
        "except SystemExit as e: assert e.code == 0\n"
        "assert not {'torch', 'sklearn', 'matplotlib'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True)
