"""`bilm.train`, in processes of their own: it changes settings of the process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.launch.launching import TINY, deepspeed, environment, events

pytestmark = [pytest.mark.slow, pytest.mark.launch]

TRAIN_TWICE = """
import json, os, signal, sys
import bilm
tree, run = json.loads(sys.argv[1]), sys.argv[2]
before = dict(os.environ)
handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
records = []
tree["train"] |= {"output_dir": run, "max_steps": 4}
first = bilm.train(tree, records.append)
assert first.step == 4 and first.is_finished, first
try:
    bilm.train({**tree, "data": {**tree["data"], "corpus": "/nowhere"}})
except Exception as error:
    assert "does not exist" in str(error), error
else:
    raise AssertionError("/nowhere was accepted")
tree["train"]["max_steps"] = 12
second = bilm.train(bilm.Config.model_validate_json(json.dumps(tree)), on_metrics=records.append)
assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == handlers
assert "RANK" not in os.environ
print(json.dumps({
    "records": records, "run": str(second.run_directory), "best": str(second.best_model),
    "perplexity": second.best_perplexity, "step": second.step, "finished": second.is_finished,
}))
"""

TRAIN_RANK = """
import json, os, sys
import bilm
records = []
result = bilm.train(sys.argv[1], records.append)
assert bool(records) == (os.environ["RANK"] == "0")
assert result.step == 12
"""


def tiny(corpus: Path, output: Path) -> dict[str, Any]:
    tree = json.loads(json.dumps(TINY))
    tree["data"]["corpus"], tree["train"]["output_dir"] = str(corpus), str(output)
    return dict(tree)


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_trains_and_resumes_in_one_process(corpus: Path, sampled: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    tree = json.dumps(tiny(corpus, output))
    done = run([sys.executable, "-c", TRAIN_TWICE, tree, str(output)])
    result = json.loads(done.stdout.splitlines()[-1])
    lines = (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert result.pop("records") == [json.loads(line) for line in lines]
    best = min(event["perplexity"] for event in events(output, "heldout"))
    assert result == {
        "run": str(output),
        "best": str(output / "best"),
        "perplexity": best,
        "step": 12,
        "finished": True,
    }
    # The command makes the same run.
    assert best == pytest.approx(
        min(event["perplexity"] for event in events(sampled, "heldout")), rel=1e-6
    )


def test_trains_as_a_rank_of_a_launched_job(corpus: Path, tmp_path: Path) -> None:
    config, script = tmp_path / "tiny.json", tmp_path / "script.py"
    config.write_text(json.dumps(tiny(corpus, tmp_path / "run")), encoding="utf-8")
    script.write_text(TRAIN_RANK.replace("sys.argv[1]", repr(str(config))), encoding="utf-8")
    run([*deepspeed(2), str(script)])
    assert len(events(tmp_path / "run", "train")) == 12


def test_torchrun_starts_the_module(corpus: Path, tmp_path: Path) -> None:
    """tests/packaging/test_wheel.py tests `deepspeed --module`."""
    config = tmp_path / "tiny.json"
    config.write_text(json.dumps(tiny(corpus, tmp_path / "run")), encoding="utf-8")
    launcher = [str(Path(sys.executable).with_name("torchrun")), "--standalone"]
    module = ["--nproc-per-node=2", "-m", "bilm.commands.pretrain", f"--config={config}"]
    run([*launcher, *module])
    assert len(events(tmp_path / "run", "train")) == 12
