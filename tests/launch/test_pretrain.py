"""Real `deepspeed` launches: ranks, ZeRO stages and accumulation do not change what is learned."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bilm.embedding.embedder import Embedder
from tests.conftest import GOLDEN, ROOT
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
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_demo_corpus(tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="module")
def sampled(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One rank, sampled softmax: what the others are compared with."""
    output = tmp_path_factory.mktemp("sampled") / "run"
    launch(corpus, output, ranks=None)
    return output


@pytest.fixture(scope="module")
def full(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One rank, full softmax, stage 0."""
    output = tmp_path_factory.mktemp("full") / "run"
    launch(corpus, output, FULL, ranks=None)
    return output


def test_a_run_learns_and_leaves_everything_in_its_place(corpus: Path, sampled: Path) -> None:
    first, last = losses(sampled)[0], losses(sampled)[-1]
    assert sum(last) < sum(first)
    (six, twelve) = events(sampled, "heldout")
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


def test_two_ranks_equal_one_with_the_sampled_softmax(
    corpus: Path, sampled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))
    launch(corpus, tmp_path / "run", ranks=2)
    assert not (tmp_path / "extensions").exists()  # DeepSpeed has compiled nothing
    assert_same_run(sampled, tmp_path / "run", STEPS, 1e-5)
    ours, theirs = events(sampled, "heldout"), events(tmp_path / "run", "heldout")
    for one, other in zip(ours, theirs, strict=True):
        assert one["perplexity"] == pytest.approx(other["perplexity"], abs=1e-4)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_zero_stages_equal_one_rank_with_the_full_softmax(
    stage: int, corpus: Path, full: Path, tmp_path: Path
) -> None:
    launch(corpus, tmp_path / "run", FULL, f"deepspeed.zero_optimization.stage={stage}", ranks=2)
    assert_same_run(full, tmp_path / "run", STEPS, 1e-5)


def test_accumulation_equals_the_larger_batch(corpus: Path, sampled: Path, tmp_path: Path) -> None:
    launch(corpus, tmp_path / "run", "deepspeed.gradient_accumulation_steps=4", ranks=None)
    assert_same_run(sampled, tmp_path / "run", STEPS, 1e-5)


ADAM = (
    "train.optimizer.name=adam",
    "train.optimizer.learning_rate=0.01",
    "train.optimizer.epsilon=1e-8",
    "train.optimizer.warmup_steps=3",
)


def test_adam_with_the_sampled_softmax_resumes_on_two_ranks(corpus: Path, tmp_path: Path) -> None:
    whole, broken = tmp_path / "a" / "run", tmp_path / "b" / "run"
    launch(corpus, whole, *ADAM, ranks=None)
    launch(corpus, broken, *ADAM, "train.max_steps=4", ranks=None)
    launch(corpus, broken, *ADAM, ranks=2)
    assert_same_run(whole, broken, STEPS, 1e-5)


def test_adam_under_zero_resumes_as_at_stage_0(corpus: Path, tmp_path: Path) -> None:
    adam = (FULL, *ADAM)
    whole, broken = tmp_path / "a" / "run", tmp_path / "b" / "run"
    launch(corpus, whole, *adam, ranks=None)
    stage = "deepspeed.zero_optimization.stage="
    launch(corpus, broken, *adam, f"{stage}2", "train.max_steps=4", ranks=2)
    launch(corpus, broken, *adam, f"{stage}3", "train.max_steps=8", ranks=2)
    launch(corpus, broken, *adam, f"{stage}1", ranks=2)
    assert losses(broken) == [pytest.approx(pair, abs=1e-4) for pair in losses(whole)]


def test_bfloat16_is_close_to_float32(corpus: Path, sampled: Path, tmp_path: Path) -> None:
    launch(corpus, tmp_path / "run", "train.precision=bfloat16", ranks=None)
    lower, higher = losses(tmp_path / "run"), losses(sampled)
    assert lower != higher
    for one, other in zip(lower, higher, strict=True):
        assert one == pytest.approx(other, abs=0.05)


def test_the_first_losses_of_the_demo_are_the_stored_ones(tmp_path: Path) -> None:
    """The curve may change only with a line in CHANGELOG.md."""
    stored = json.loads((ROOT / "tests" / "launch" / "demo_losses.json").read_text())
    corpus = build_demo_corpus(tmp_path, sentences=60_000)
    command = [
        *(sys.executable, str(ROOT / "launch" / "pretrain.py")),
        *("--config", str(ROOT / "configs" / "demo.json")),
        *(f"data.corpus={corpus}", f"train.output_dir={tmp_path / 'run'}"),
        *("train.max_steps=100", "train.log.every_steps=1", "train.evaluation.every_steps=1000"),
    ]
    subprocess.run(command, check=True, env=environment(), cwd=ROOT, timeout=300)
    found = losses(tmp_path / "run")
    assert len(found) == len(stored["losses"]) == 100
    for step, (ours, theirs) in enumerate(zip(found, stored["losses"], strict=True), 1):
        assert ours == pytest.approx(tuple(theirs), abs=1e-4), f"step {step}"


def test_start_from_another_model(corpus: Path, sampled: Path, tmp_path: Path) -> None:
    """A run that starts from another begins better than that one did."""
    launch(corpus, tmp_path / "a" / "run", f"train.init_from={sampled}", ranks=None)
    assert sum(losses(tmp_path / "a" / "run")[0]) < sum(losses(sampled)[1])
    done = launch(
        corpus,
        tmp_path / "b" / "run",
        f"train.init_from={GOLDEN}",
        "train.max_steps=1",
        ranks=None,
        code=2,
    )
    assert "is another model" in done.stderr
    assert "model.lstm" in done.stderr


def test_published_files_without_softmax_start_a_domain_run(
    corpus: Path, sampled: Path, tmp_path: Path
) -> None:
    published = tmp_path / "published"
    export = [
        *(sys.executable, str(ROOT / "launch" / "export.py"), str(sampled)),
        *("--published", str(published), "--model", str(tmp_path / "model")),
    ]
    subprocess.run([*export, "--without-softmax"], check=True, env=environment(), cwd=ROOT)
    assert json.loads((published / "options.json").read_text())["char_cnn"]["n_characters"] == 262
    done = launch(
        corpus,
        tmp_path / "c" / "run",
        f"train.init_from={published}",
        "train.max_steps=2",
        ranks=None,
    )
    assert "the source has no softmax" in done.stderr
    again = subprocess.run(export, env=environment(), cwd=ROOT, capture_output=True, text=True)
    assert again.returncode == 2
    assert "exists already" in again.stderr


def test_evaluate_gives_the_figure_of_the_loop_on_any_number_of_ranks(
    corpus: Path, sampled: Path, tmp_path: Path
) -> None:
    expected = events(sampled, "heldout")[-1]
    script = [
        str(ROOT / "launch" / "evaluate.py"),
        *(
            "--model",
            str(sampled),
            "--corpus",
            str(corpus),
            "--rows",
            "4",
            "--unroll",
            "6",
            "--json",
        ),
    ]
    deepspeed = [str(Path(sys.executable).parent / "deepspeed"), "--num_gpus", "2"]
    for command in ([sys.executable, *script], [*deepspeed, *script]):
        done = subprocess.run(
            command, env=environment(), cwd=ROOT, capture_output=True, text=True, check=True
        )
        (line,) = [line for line in done.stdout.splitlines() if line.startswith("{")]
        found = json.loads(line)
        assert found["perplexity"] == pytest.approx(expected["perplexity"], abs=1e-4)
        assert found["backward"] == pytest.approx(expected["perplexity_backward"], abs=1e-4)
        assert found["unknown_share"] == expected["unknown_share"]


def test_plan_and_dry_run_leave_nothing(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "x" / "run"
    done = launch(corpus, output, "--plan", "--words-per-second", "1000", ranks=None)
    assert "Parameters" in done.stdout
    assert "hours" in done.stdout
    done = launch(corpus, output, "--dry-run", ranks=2)
    assert "one step of 48 predictions" in done.stderr
    assert not output.exists()


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["deepspeed.train_batch_size=9"], "train_batch_size is 9; it must be a multiple of 2"),
        (["train.evaluation.rows=3"], "train.evaluation.rows is 3; it must be a multiple of 2"),
        (["data.corpus=/nowhere"], "does not exist"),
        (["deepspeed.zero_optimization.stage=2"], "ZeRO stages 1 to 3 refuse"),
        (["train.init_from=/nowhere"], "is neither a run"),
    ],
)
def test_mistakes_are_told_once_with_exit_code_2(
    overrides: list[str], message: str, corpus: Path, tmp_path: Path
) -> None:
    done = launch(corpus, tmp_path / "run", *overrides, ranks=2, code=2)
    assert message in done.stderr
    assert done.stderr.count("error: ") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["sampled", "full"])
def test_what_adagrad_summed_up_is_what_the_clip_let_through(
    name: str, request: pytest.FixtureRequest
) -> None:
    """The sums of squares are those of the logged norms: nothing else has scaled a gradient."""
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


def test_the_clip_binds_where_it_should(corpus: Path, tmp_path: Path) -> None:
    limit = 0.5
    launch(corpus, tmp_path / "run", f"train.max_gradient_norm={limit}", ranks=2)
    assert all(line["clipped_steps_share"] == 1.0 for line in events(tmp_path / "run", "train"))
    sums = [
        tensor.double() - 1.0
        for key, tensor in final_tensors(tmp_path / "run", STEPS).items()
        if key.startswith("optimizer/")
    ]
    expected = STEPS * limit**2
    assert sum(float(tensor.sum()) for tensor in sums) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["evaluate.py", "--model", "{tmp}", "--corpus", "{corpus}"], "is neither a run"),
        (["evaluate.py", "--model", "{run}", "--corpus", "/nowhere"], "does not exist"),
        (["evaluate.py", "--model", "{run}", "--corpus", "{corpus}", "--split", "x"], "no split"),
        (["evaluate.py", "--model", "{run}", "--corpus", "{corpus}", "--rows", "0"], "rows is 0"),
        (["export.py", "{tmp}", "--model", "{tmp}/m"], "no best model yet"),
        (["export.py", "{tmp}", "--model", "{tmp}/m", "--which", "newest"], "holds no checkpoint"),
        (["export.py", "{run}"], "nothing to write"),
        (["export.py", "{run}", "--model", "{tmp}", "--overwrite"], "is no model directory"),
        (["export.py", "{run}", "--published", "{tmp}/mine"], "mine/vocab.txt exists already"),
        (["convert.py", "to-published", "{run}/best", "{tmp}/file"], "is a file"),
        (["convert.py", "from-published", "{tmp}/o", "{tmp}/w", "{tmp}/m"], "No such file"),
    ],
)
def test_mistakes_with_the_other_commands(
    command: list[str], message: str, corpus: Path, sampled: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "vocab.txt").write_text("my own")
    (tmp_path / "file").write_text("my own")
    script, *arguments = (part.format(tmp=tmp_path, run=sampled, corpus=corpus) for part in command)
    done = subprocess.run(
        [sys.executable, str(ROOT / "launch" / script), *arguments],
        capture_output=True,
        text=True,
        env=environment(),
        cwd=ROOT,
    )
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "mine" / "vocab.txt").read_text() == "my own"


def test_a_full_disk_is_told_and_leaves_the_last_checkpoint(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    launch(corpus, output, "train.max_steps=4", ranks=None)
    limit = (output / "checkpoints" / "step-00000004" / "weights.safetensors").stat().st_size // 2
    # Without histograms: TensorBoard's file must stay below the limit that stands for the disk.
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
    launch(corpus, output, "train.max_steps=8", ranks=None)
