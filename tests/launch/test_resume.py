"""Stopping and resuming: signals, other numbers of ranks, damaged checkpoints.

The tests that kill processes are in tests/chaos/.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from bilm.training.run_record import RunRecord
from tests.launch.forking import train_forked
from tests.launch.launching import (
    assert_same_run,
    build_demo_corpus,
    events,
    launch,
    ranks_of,
    sign,
    start,
    tree_of,
    wait_for_step,
    wait_gone,
)

pytestmark = [pytest.mark.slow, pytest.mark.launch]
STEPS = 12
DROPOUT = "model.dropout=0.2"  # its randomness must be restored too
LONG = "train.max_steps=100000"
NO_CHECKPOINTS = ("train.checkpoints.every_steps=100000", "train.evaluation.every_steps=100000")


@pytest.fixture(scope="module")
def unbroken(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two ranks with dropout that is never interrupted."""
    output = tmp_path_factory.mktemp("unbroken") / "run"
    train_forked(corpus, output, DROPOUT, ranks=2)
    return output


def test_resumes_with_other_numbers_of_ranks(corpus: Path, tmp_path: Path) -> None:
    unbroken, broken = tmp_path / "a" / "run", tmp_path / "b" / "run"
    train_forked(corpus, unbroken)
    for ranks, steps in ((2, 4), (1, 8), (2, STEPS)):
        train_forked(corpus, broken, f"train.max_steps={steps}", ranks=ranks)
    assert_same_run(unbroken, broken, STEPS, 1e-5)


@pytest.mark.parametrize("target", ["outer", "launcher", "rank", "all"])
def test_sigterm_saves_and_ends_all_processes(corpus: Path, target: str, tmp_path: Path) -> None:
    output = tmp_path / "run"
    process = start(corpus, output, LONG, *NO_CHECKPOINTS, ranks=2)
    wait_for_step(output, 3)
    processes = tree_of(process)
    ranks = ranks_of(processes)
    assert len(ranks) == 2
    (launcher,) = {psutil.Process(rank.ppid()) for rank in ranks}
    assert launcher.pid != process.pid
    targets = {
        "outer": [processes[0]],
        "launcher": [launcher],
        "rank": [ranks[1]],
        "all": processes,
    }[target]
    for one in targets:
        one.send_signal(signal.SIGTERM)
    code = process.wait(timeout=60)
    wait_gone(processes)
    # The shell gets the rank's exit code unless DeepSpeed's processes got the signal themselves.
    assert code == {"outer": -signal.SIGTERM, "launcher": 1, "rank": 75, "all": -15}[target]
    last = events(output, "train")[-1]["step"]
    assert events(output, "checkpoint")[-1]["step"] == last
    done = train_forked(corpus, output, f"train.max_steps={last + 2}", ranks=2)
    assert f"step-{last:08d}" in done.stderr
    assert [e["step"] for e in events(output, "train")] == list(range(1, last + 3))


def test_skips_damaged_latest_checkpoint(corpus: Path, unbroken: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    train_forked(corpus, output, DROPOUT, "train.max_steps=8", ranks=2)
    newest = output / "checkpoints" / "step-00000008" / "optimizer.safetensors"
    data = bytearray(newest.read_bytes())
    data[-7] ^= 1
    newest.write_bytes(data)
    done = launch(corpus, output, DROPOUT, ranks=2)
    assert "optimizer.safetensors is damaged" in done.stderr
    assert "resuming from" in done.stderr
    assert "step-00000006" in done.stderr  # the checkpoint of the best evaluation so far
    assert_same_run(unbroken, output, STEPS)


def test_rejects_changed_settings(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    train_forked(corpus, output, "train.max_steps=2")
    for overrides, message in (
        (["model.lstm.dim=48", "--allow-changes"], "settings:\n  model.lstm.dim: 32 -> 48\n"),
        (["train.seed=5"], "train.seed: 0 -> 5"),
        (["deepspeed.train_batch_size=4"], "deepspeed.train_batch_size: 8 -> 4"),
        (["--fresh"], "--fresh"),
    ):
        done = train_forked(corpus, output, *overrides, code=2)
        assert message in done.stderr
    other = build_demo_corpus(tmp_path / "other", sentences=500)
    done = train_forked(other, output, code=2)
    assert "data.corpus" in done.stderr


def test_changed_learning_rate_requires_flag(corpus: Path, tmp_path: Path) -> None:
    output, rate = tmp_path / "run", "train.optimizer.learning_rate=0.4"
    train_forked(corpus, output, "train.max_steps=2")
    done = train_forked(corpus, output, "train.max_steps=4", rate, code=2)
    line = "  train.optimizer.learning_rate: 0.2 -> 0.4\n"
    assert f"was written:\n{line}Restore" in done.stderr
    assert "--allow-changes" in done.stderr
    done = train_forked(corpus, output, "train.max_steps=4", rate, "--allow-changes")
    assert line in done.stderr
    assert [e["learning_rate"] for e in events(output, "train")] == [0.2, 0.2, 0.4, 0.4]
    record = RunRecord.read(output / "checkpoints" / "step-00000004")
    assert record.changeable is not None
    assert record.changeable["train.optimizer.learning_rate"] == 0.4


def test_best_model_is_of_one_heldout_subset(corpus: Path, tmp_path: Path) -> None:
    """Other held-out text makes perplexities lower or higher, whichever model is better."""
    output, limit = tmp_path / "run", "train.evaluation.max_words=24"
    train_forked(corpus, output, "train.max_steps=6")
    done = train_forked(corpus, output, limit, code=2)
    assert "train.evaluation.max_words: null -> 24" in done.stderr
    done = train_forked(corpus, output, limit, "--allow-changes")
    assert "is not comparable" in done.stderr
    assert "a subset of 24 of " in done.stderr
    complete, *subsets = events(output, "heldout")
    assert [event["step"] for event in subsets] == [6, 12]
    assert {event["predictions"] for event in subsets} == {24}
    assert complete["predictions"] == subsets[0]["available_predictions"]
    record = RunRecord.read(output / "checkpoints" / "step-00000012")
    best = min(subsets, key=lambda event: float(event["perplexity"]))
    assert (record.progress.best_step, record.progress.best_perplexity) == (
        best["step"],
        best["perplexity"],
    )


def test_resumes_checkpoint_of_earlier_version(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    train_forked(corpus, output, "train.max_steps=4")
    checkpoint = output / "checkpoints" / "step-00000004"
    tree = json.loads((checkpoint / "run.json").read_text())
    del tree["changeable"]
    (checkpoint / "run.json").write_text(json.dumps(tree | {"version": 2}))
    sign(checkpoint)
    done = train_forked(corpus, output, "train.optimizer.learning_rate=0.4")
    assert "did not record the learning rate" in done.stderr
    assert "resuming from" in done.stderr


def test_rejects_second_run_in_same_directory(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    process = start(corpus, output, LONG, ranks=1)
    try:
        wait_for_step(output, 2)
        done = train_forked(corpus, output, code=2)
        assert "another process is training" in done.stderr
    finally:
        processes = tree_of(process)
        for one in processes:
            one.kill()
        process.wait()
        wait_gone(processes)


def test_fails_if_no_checkpoint_is_intact(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    train_forked(corpus, output, "train.max_steps=4")
    for file in (output / "checkpoints").glob("*/run.json"):
        file.write_text("{}")
    done = train_forked(corpus, output, code=2)
    assert "none of the checkpoints" in done.stderr


def test_restarts_after_kill_before_first_checkpoint(corpus: Path, tmp_path: Path) -> None:
    unbroken, broken = tmp_path / "a" / "run", tmp_path / "b" / "run"
    train_forked(corpus, unbroken, "train.max_steps=3")
    process = start(corpus, broken, LONG, *NO_CHECKPOINTS, ranks=1)
    wait_for_step(broken, 2)
    processes = tree_of(process)
    for one in processes:
        one.kill()
    process.wait()
    wait_gone(processes)
    train_forked(corpus, broken, "train.max_steps=3")
    assert_same_run(unbroken, broken, 3)


def test_ctrl_c_saves_checkpoint(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    process = start(corpus, output, LONG, *NO_CHECKPOINTS, ranks=2)
    wait_for_step(output, 3)
    processes = tree_of(process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    os.killpg(process.pid, signal.SIGINT)  # Ctrl-C pressed twice
    process.wait(timeout=60)
    wait_gone(processes)
    last = events(output, "train")[-1]["step"]
    assert events(output, "checkpoint")[-1]["step"] == last


def test_resumes_patience(corpus: Path, tmp_path: Path) -> None:
    """The learning rate is so high that an early evaluation stays the best."""
    diverging = ("train.optimizer.learning_rate=20", "train.evaluation.every_steps=2")
    output = tmp_path / "run"
    train_forked(corpus, output, *diverging, "train.max_steps=4")
    assert len(events(output, "heldout")) == 2
    done = train_forked(corpus, output, *diverging, "train.evaluation.patience=3", LONG)
    assert "held-out perplexity has not improved in 3 evaluations" in done.stderr
    perplexities = [event["perplexity"] for event in events(output, "heldout")]
    best = perplexities.index(min(perplexities))
    assert len(perplexities) == best + 1 + 3
    # The best checkpoint is kept, although no regular one was due at its step.
    names = {path.name for path in (output / "checkpoints").iterdir()}
    assert f"step-{2 * (best + 1):08d}" in names


def test_repeats_interrupted_evaluation(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    # One row and one word per step: evaluations take far longer than the training between them.
    slow = ("train.evaluation.every_steps=1", "train.evaluation.rows=1", "data.unroll_steps=1")
    process = start(corpus, output, LONG, *slow, ranks=1)
    wait_for_step(output, 2)
    processes = tree_of(process)
    (rank,) = ranks_of(processes)
    rank.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 75
    wait_gone(processes)
    last = events(output, "train")[-1]["step"]
    train_forked(corpus, output, *slow, f"train.max_steps={last}")
    assert [e["step"] for e in events(output, "heldout")] == list(range(1, last + 1))
