from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

BIG = ROOT / "configs" / "big.json"


def test_prints_error_without_traceback_or_heavy_imports(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model": {}}), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "bilm.commands.config", str(path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "error: " in done.stderr
    modules = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert "pydantic" in modules  # -X importtime has printed the modules
    assert not modules & {"torch", "deepspeed", "numpy"}


def test_prints_resolved_config() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bilm.commands.config", str(BIG), "train.seed=3"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    assert json.loads(done.stdout)["train"]["seed"] == 3
