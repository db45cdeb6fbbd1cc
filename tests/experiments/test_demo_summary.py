from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.mark.parametrize(
    ("events", "message"),
    [
        (None, "metrics.jsonl does not exist; run `make demo` first"),
        ([{"event": "train", "step": 1}], "has no held-out evaluation yet"),
    ],
)
def test_rejects_unfinished_demo(
    events: list[dict[str, object]] | None, message: str, tmp_path: Path
) -> None:
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "grammar.json").write_text("{}")
    if events is not None:
        (tmp_path / "run").mkdir()
        lines = "".join(json.dumps(event) + "\n" for event in events)
        (tmp_path / "run" / "metrics.jsonl").write_text(lines)
    done = subprocess.run(
        [sys.executable, "-m", "experiments.demo_summary", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
