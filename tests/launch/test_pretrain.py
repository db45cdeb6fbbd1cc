"""Training launches: ranks, ZeRO stages and accumulation do not change the result.

All runs have dropout.
"""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from bilm.embedding.embedder import Embedder
from tests.conftest import GOLDEN, ROOT
from tests.launch.forking import train_forked
from tests.launch.launching import (
    assert_same_run,
    build_demo_corpus,
    command_for,
    environment,
    events,
    final_tensors,
    launch,
    losses,
)

pytestmark = [pytest.mark.slow, pytest.mark.launch]
FULL = "model.softmax.kind=full"
STEPS = 12


@pytest.fixture(scope="module")
def full(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with one rank and the full softmax, at ZeRO stage 0."""
    output = tmp_path_factory.mktemp("full") / "run"
    train_forked(corpus, output, FULL)
    return output


def test_run_learns_and_writes_all_files(corpus: Path, sampled: Path) -> None:
    first, last = losses(sampled)[0], losses(sampled)[-1]
    assert sum(last) < sum(first)
    six, twelve = events(sampled, "heldout")
    assert (six["step"], twelve["step"]) == (6, 12)
    assert twelve["perplexity"] < six["perplexity"]
    assert twelve["perplexity"] ** 2 == pytest.approx(
        twelve["perplexity_forward"] * twelve["perplexity_backward"]
    )
    line = events(sampled, "train")[-1]
    for name in (
        "perplexity_sampled",
        "learning_rate",
        "gradient_norm",
        "clipped_steps_share",
        "clipped_cells_share",
        "clipped_projections_share",
        "words_per_second",
        "waiting_for_data_share",
        "memory_gib",
    ):
        assert name in line
    assert json.loads((sampled / "config.json").read_text())["data"]["corpus"] == str(corpus)
    assert sorted(p.name for p in (sampled / "checkpoints").iterdir()) == [
        "ever_saved",
        "step-00000008",
        "step-00000012",
    ]
    assert any((sampled / "tensorboard").iterdir())
    (vectors,) = Embedder.from_pretrained(sampled / "best").embed(["the bank floods"])
    assert vectors.shape == (3, 3, 32)


def test_terminal_shows_every_step_and_next_commands(corpus: Path, tmp_path: Path) -> None:
    """The bar advances between the lines of metrics.jsonl, of which there is one."""
    output = tmp_path / "run"
    command = command_for(corpus, output, "train.log.every_steps=100", ranks=None)
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 120))
    environ = environment() | {"TQDM_MININTERVAL": "0"}  # draw every step
    with subprocess.Popen(command, stderr=theirs, env=environ, cwd=ROOT) as process:
        os.close(theirs)
        shown = b""
        while part := _read_terminal(ours):
            shown += part
        assert process.wait(timeout=60) == 0
    os.close(ours)
    text = shown.decode()
    steps = set(re.findall(rf"(\d+)/{STEPS} \[", text))
    assert steps >= {str(step) for step in range(STEPS + 1)}, text
    assert f"is in {output / 'best'}." in text
    assert f"bilm.commands.evaluate --model {output / 'best'} --corpus {corpus}" in text
    for module in ("bilm.commands.export", "bilm.commands.embed", "downstream.classify"):
        assert f"python -m {module} " in text


def _read_terminal(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # Linux raises an error when the other side is closed
        return b""


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_train_like_one_with_sampled_softmax(
    ranks: int, corpus: Path, sampled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))
    launch(corpus, tmp_path / "run", ranks=ranks)
    assert not (tmp_path / "extensions").exists()  # DeepSpeed has not compiled anything
    assert_same_run(sampled, tmp_path / "run", STEPS, 1e-5)
    evaluations = zip(events(sampled, "heldout"), events(tmp_path / "run", "heldout"), strict=True)
    for one, other in evaluations:
        assert one["perplexity"] == pytest.approx(other["perplexity"], abs=1e-4)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_zero_stages_train_like_one_rank_with_full_softmax(
    stage: int, corpus: Path, full: Path, tmp_path: Path
) -> None:
    stage_of_run = f"deepspeed.zero_optimization.stage={stage}"
    train_forked(corpus, tmp_path / "run", FULL, stage_of_run, ranks=2)
    assert_same_run(full, tmp_path / "run", STEPS, 1e-5)


def test_zero_stages_clip_like_one_rank_with_sampled_softmax(corpus: Path, tmp_path: Path) -> None:
    """The norm is that of dense and sparse gradients together, and is always above the limit."""
    limit, one = "train.max_gradient_norm=0.3", tmp_path / "one"
    train_forked(corpus, one, limit)
    for stage in (0, 1, 2):
        run = tmp_path / f"stage_{stage}"
        train_forked(corpus, run, limit, f"deepspeed.zero_optimization.stage={stage}", ranks=2)
        assert_same_run(one, run, STEPS, 1e-5)


@pytest.mark.parametrize(("ranks", "steps"), [(1, 4), (2, 2)])
def test_accumulation_trains_like_one_batch(
    ranks: int, steps: int, corpus: Path, sampled: Path, tmp_path: Path
) -> None:
    accumulation = f"deepspeed.gradient_accumulation_steps={steps}"
    train_forked(corpus, tmp_path / "run", accumulation, ranks=ranks)
    assert_same_run(sampled, tmp_path / "run", STEPS, 1e-5)


def test_dropout_changes_the_run(corpus: Path, sampled: Path, tmp_path: Path) -> None:
    """The comparisons of ranks and micro-batches are made with dropout."""
    train_forked(corpus, tmp_path / "run", "model.dropout=0.0", "train.max_steps=2")
    assert abs(sum(losses(tmp_path / "run")[1]) - sum(losses(sampled)[1])) > 1e-3


ADAM = (
    "train.optimizer.name=adam",
    "train.optimizer.learning_rate=0.01",
    "train.optimizer.epsilon=1e-8",
    "train.optimizer.warmup_steps=3",
)


def test_adam_with_sampled_softmax_resumes_on_two_ranks(corpus: Path, tmp_path: Path) -> None:
    unbroken, broken = tmp_path / "a" / "run", tmp_path / "b" / "run"
    train_forked(corpus, unbroken, *ADAM)
    train_forked(corpus, broken, *ADAM, "train.max_steps=4")
    train_forked(corpus, broken, *ADAM, ranks=2)
    assert_same_run(unbroken, broken, STEPS, 1e-5)


def test_adam_resumes_at_other_zero_stages(corpus: Path, tmp_path: Path) -> None:
    unbroken, broken = tmp_path / "a" / "run", tmp_path / "b" / "run"
    train_forked(corpus, unbroken, FULL, *ADAM)
    stage = "deepspeed.zero_optimization.stage="
    train_forked(corpus, broken, FULL, *ADAM, f"{stage}2", "train.max_steps=4", ranks=2)
    train_forked(corpus, broken, FULL, *ADAM, f"{stage}3", "train.max_steps=8", ranks=2)
    train_forked(corpus, broken, FULL, *ADAM, f"{stage}1", ranks=2)
    assert losses(broken) == [pytest.approx(pair, abs=1e-4) for pair in losses(unbroken)]


def test_bfloat16_is_close_to_float32(corpus: Path, sampled: Path, tmp_path: Path) -> None:
    train_forked(corpus, tmp_path / "run", "train.precision=bfloat16")
    lower, higher = losses(tmp_path / "run"), losses(sampled)
    assert lower != higher
    for one, other in zip(lower, higher, strict=True):
        assert one == pytest.approx(other, abs=0.05)


def test_demo_losses_equal_stored_losses(tmp_path: Path) -> None:
    """A change to the losses requires an entry in CHANGELOG.md."""
    stored = json.loads((ROOT / "tests" / "launch" / "demo_losses.json").read_text())
    corpus = build_demo_corpus(tmp_path, sentences=60_000)
    command = [
        sys.executable,
        str(ROOT / "launch" / "pretrain.py"),
        f"--config={ROOT / 'configs' / 'demo.json'}",
        f"data.corpus={corpus}",
        f"train.output_dir={tmp_path / 'run'}",
        "train.max_steps=100",
        "train.log.every_steps=1",
        "train.evaluation.every_steps=1000",
    ]
    subprocess.run(command, check=True, env=environment(), cwd=ROOT, timeout=300)
    measured = losses(tmp_path / "run")
    assert len(measured) == len(stored["losses"]) == 100
    for step, (actual, expected) in enumerate(zip(measured, stored["losses"], strict=True), 1):
        assert actual == pytest.approx(tuple(expected), abs=1e-4), f"step {step}"


def test_starts_from_another_model(corpus: Path, sampled: Path, tmp_path: Path) -> None:
    """A run that starts from another model has a lower first loss than the run of that model."""
    train_forked(corpus, tmp_path / "a" / "run", f"train.init_from={sampled}")
    assert sum(losses(tmp_path / "a" / "run")[0]) < sum(losses(sampled)[1])
    other = f"train.init_from={GOLDEN}"
    done = train_forked(corpus, tmp_path / "b" / "run", other, "train.max_steps=1", code=2)
    assert "a different configuration" in done.stderr
    assert "model.lstm" in done.stderr


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["deepspeed.train_batch_size=9"], "train_batch_size is 9; it must be a multiple of 2"),
        (["train.evaluation.rows=3"], "train.evaluation.rows is 3; it must be a multiple of 2"),
        (["data.corpus=/nowhere"], "does not exist"),
        (["deepspeed.zero_optimization.stage=3"], "ZeRO stage 3 does not support"),
        (["train.init_from=/nowhere"], "is neither a run"),
    ],
)
def test_prints_user_errors_once(
    overrides: list[str], message: str, corpus: Path, tmp_path: Path
) -> None:
    done = launch(corpus, tmp_path / "run", *overrides, ranks=2, code=2)
    assert message in done.stderr
    assert done.stderr.count("error: ") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["sampled", "full"])
def test_adagrad_sums_equal_squared_gradient_norms(
    name: str, request: pytest.FixtureRequest
) -> None:
    """The sums of squares equal the logged norms, so nothing else has scaled a gradient."""
    output = request.getfixturevalue(name)
    sums = {
        key: tensor.double() - 1.0
        for key, tensor in final_tensors(output, STEPS).items()
        if key.startswith("optimizer/")
    }
    assert all(bool(tensor.any()) for tensor in sums.values())  # every weight has had a gradient
    norms = [line["gradient_norm"] for line in events(output, "train")]
    assert max(norms) < 10.0
    expected = sum(norm**2 for norm in norms)
    assert sum(float(tensor.sum()) for tensor in sums.values()) == pytest.approx(expected, rel=1e-3)


def test_clips_large_gradients(corpus: Path, tmp_path: Path) -> None:
    limit = 0.5
    train_forked(corpus, tmp_path / "run", f"train.max_gradient_norm={limit}", ranks=2)
    assert all(line["clipped_steps_share"] == 1.0 for line in events(tmp_path / "run", "train"))
    sums = [
        tensor.double() - 1.0
        for key, tensor in final_tensors(tmp_path / "run", STEPS).items()
        if key.startswith("optimizer/")
    ]
    expected = STEPS * limit**2
    assert sum(float(tensor.sum()) for tensor in sums) == pytest.approx(expected, rel=1e-3)


def test_full_disk_is_reported_and_keeps_last_checkpoint(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    train_forked(corpus, output, "train.max_steps=4")
    limit = (output / "checkpoints" / "step-00000004" / "weights.safetensors").stat().st_size // 2
    # Without histograms, so that the TensorBoard file stays below the limit of file sizes.
    no_histograms = "train.log.histograms_every_steps=null"
    command = command_for(corpus, output, "train.max_steps=8", no_histograms, ranks=None)
    done = subprocess.run(
        ["bash", "-c", f'trap "" XFSZ; ulimit -f {limit // 1024}; exec "$@"', "run", *command],
        capture_output=True,
        text=True,
        env=environment(),
        cwd=ROOT,
    )
    assert done.returncode == 2, done.stderr
    assert "no space left while writing" in done.stderr
    assert "Traceback" not in done.stderr
    names = sorted(path.name for path in (output / "checkpoints").iterdir())
    assert names == ["ever_saved", "step-00000004"]
    train_forked(corpus, output, "train.max_steps=8")
