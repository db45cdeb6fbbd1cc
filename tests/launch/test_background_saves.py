"""Runs whose checkpoints are written slowly, fail to be written, or are killed while written."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bilm.errors import STOPPED_EXIT_CODE
from bilm.training.checkpoints import CheckpointStore
from tests.conftest import ROOT
from tests.launch.forking import train_forked
from tests.launch.launching import (
    TIMEOUT_SECONDS,
    TINY,
    assert_same_run,
    deepspeed,
    environment,
    events,
    final_tensors,
)

pytestmark = [pytest.mark.slow, pytest.mark.launch]
STEPS = 12
KEEP_ALL = "train.checkpoints.keep_last=100"

# Trains the configuration in argv[1], with another function in place of `CheckpointStore.save`.
SCRIPT = """
import logging, os, signal, sys, threading, time
import bilm
from bilm.errors import run_command
from bilm.files import writing
from bilm.training.checkpoints import CheckpointStore

logging.basicConfig(level="INFO", stream=sys.stderr, force=True)
save, num_saves, last_step, SECONDS = CheckpointStore.save, 0, 0, 300

def wait_for_step(step):
    deadline = time.monotonic() + SECONDS
    while last_step < step:
        assert time.monotonic() < deadline, (last_step, step)
        time.sleep(0.001)

def slow_save(store, tensors, record):
    wait_for_step(min(record.step + 2, 12))  # two steps later
    return save(store, tensors, record)

def fail_first_save(store, tensors, record):
    global num_saves
    num_saves += 1
    if num_saves == 1:
        raise OSError(28, "No space left on device", "a-file")
    return save(store, tensors, record)

def hang_at_rename(store, tensors, record):
    if record.step == 8:
        def rename(*_):
            wait_for_step(10)
            print("writing", flush=True)
            time.sleep(SECONDS)
        writing._replace_directory = rename
    return save(store, tensors, record)

def stop_in_save(store, tensors, record):
    if record.step == 4:
        wait_for_step(5)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)
    return save(store, tensors, record)

def note(record):
    global last_step
    if record["event"] == "train":
        last_step = record["step"]

CheckpointStore.save = globals()[WRITER]

def main():
    return 0 if bilm.train(CONFIG, note).is_finished else 75

run_command(main, tear_down=False)
"""


def script_for(corpus: Path, output: Path, writer: str, **checkpoints: Any) -> Path:
    """Write the script of a tiny run with this writer, and return its path."""
    tree = json.loads(json.dumps(TINY))
    tree["data"]["corpus"], tree["train"]["output_dir"] = str(corpus), str(output)
    tree["train"]["checkpoints"] |= {"keep_last": 100, **checkpoints}
    output.parent.mkdir(parents=True, exist_ok=True)
    config, script = output.with_suffix(".json"), output.with_suffix(".py")
    config.write_text(json.dumps(tree), encoding="utf-8")
    text = SCRIPT.replace("WRITER", repr(writer)).replace("CONFIG", repr(str(config)))
    script.write_text(text, encoding="utf-8")
    return script


def run(script: Path, ranks: int | None = None) -> subprocess.CompletedProcess[str]:
    launcher = [sys.executable] if ranks is None else deepspeed(ranks)
    return subprocess.run(
        [*launcher, str(script)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )


def saved_steps(output: Path) -> list[int]:
    return sorted(int(path.name[5:]) for path in (output / "checkpoints").glob("step-*"))


@pytest.fixture(scope="module")
def unbroken(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run of one rank that keeps all checkpoints."""
    output = tmp_path_factory.mktemp("unbroken") / "run"
    train_forked(corpus, output, KEEP_ALL)
    return output


def test_training_continues_during_save_and_does_not_change_it(
    corpus: Path, unbroken: Path, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    done = run(script_for(corpus, output, "slow_save"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert saved_steps(output) == saved_steps(unbroken) == [4, 6, 8, 12]
    for step in saved_steps(output):
        saved, expected = final_tensors(output, step), final_tensors(unbroken, step)
        assert saved.keys() == expected.keys()
        assert all(saved[name].equal(expected[name]) for name in saved), step
    assert_same_run(unbroken, output, STEPS)
    lines = events(output, "checkpoint")
    assert [line["step"] for line in lines] == [4, 6, 8, 12]
    assert all(0 <= line["stall_seconds"] <= line["seconds"] for line in lines)


def test_failed_save_stops_run_within_one_step(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    done = run(script_for(corpus, output, "fail_first_save"), ranks=2)
    assert done.returncode == 2, done.stderr[-3000:]
    assert done.stderr.count("error: a-file: No space left on device") == 1
    assert "Traceback" not in done.stderr
    assert events(output, "train")[-1]["step"] <= 6  # the save of step 4 failed during 5
    assert saved_steps(output) == []


def test_run_continues_after_failed_save_if_configured(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    done = run(script_for(corpus, output, "fail_first_save", on_error="continue"), ranks=2)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr.count("step 4 was not saved: a-file: No space left on device") == 1
    assert saved_steps(output) == [6, 8, 12]
    assert [line["step"] for line in events(output, "checkpoint")] == [6, 8, 12]


def test_failure_of_last_save_is_error(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    script = script_for(corpus, output, "fail_first_save", on_error="continue", every_steps=100)
    tree = json.loads(output.with_suffix(".json").read_text())
    tree["train"]["max_steps"] = 3
    tree["train"]["evaluation"]["every_steps"] = 100
    output.with_suffix(".json").write_text(json.dumps(tree))
    done = run(script)
    assert done.returncode == 2, done.stderr[-3000:]
    assert "error: a-file: No space left on device" in done.stderr


def test_stop_waits_for_save(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    done = run(script_for(corpus, output, "stop_in_save"))
    assert done.returncode == STOPPED_EXIT_CODE, done.stderr[-3000:]
    last = events(output, "train")[-1]["step"]
    assert saved_steps(output)[0] == 4
    assert saved_steps(output)[-1] == last
    assert events(output, "checkpoint")[-1]["step"] == last


def test_kill_during_save_keeps_previous_checkpoint(
    corpus: Path, unbroken: Path, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    script = script_for(corpus, output, "hang_at_rename")
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line == b"writing\n":
                break
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert events(output, "train")[-1]["step"] >= 10
    assert len(list((output / "checkpoints").glob(".step-00000008.*"))) == 1
    newest = CheckpointStore(output / "checkpoints").newest()
    assert newest is not None
    assert newest.record.step == 6  # of an evaluation
    done = train_forked(corpus, output, KEEP_ALL)
    assert "step-00000006" in done.stderr
    assert_same_run(unbroken, output, STEPS)
    assert not list((output / "checkpoints").glob(".step-*"))
