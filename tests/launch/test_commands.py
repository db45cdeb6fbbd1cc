"""The commands other than training: plan, evaluate, export and convert."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.launch.forking import train_forked
from tests.launch.launching import deepspeed, environment, events, launch

pytestmark = [pytest.mark.slow, pytest.mark.launch]


def test_plan_and_dry_run_write_nothing(corpus: Path, tmp_path: Path) -> None:
    output = tmp_path / "x" / "run"
    done = launch(corpus, output, "--plan", "--words-per-second", "1000", ranks=None)
    assert "Parameters" in done.stdout
    assert "hours" in done.stdout
    done = launch(corpus, output, "--dry-run", ranks=2)
    assert "one step of 48 predictions" in done.stderr
    assert not output.exists()


def test_evaluate_equals_evaluation_in_training_for_any_number_of_ranks(
    corpus: Path, sampled: Path
) -> None:
    expected = events(sampled, "heldout")[-1]
    script = [
        str(ROOT / "launch" / "evaluate.py"),
        f"--model={sampled}",
        f"--corpus={corpus}",
        "--rows=4",
        "--unroll=6",
        "--json",
    ]
    for command in ([sys.executable, *script], [*deepspeed(2), *script]):
        done = subprocess.run(
            command, env=environment(), cwd=ROOT, capture_output=True, text=True, check=True
        )
        (line,) = [line for line in done.stdout.splitlines() if line.startswith("{")]
        result = json.loads(line)
        assert result["perplexity"] == pytest.approx(expected["perplexity"], abs=1e-4)
        assert result["backward"] == pytest.approx(expected["perplexity_backward"], abs=1e-4)
        assert result["unknown_share"] == expected["unknown_share"]


def test_exported_model_has_a_card_with_the_facts_of_the_run(sampled: Path, tmp_path: Path) -> None:
    card = tmp_path / "card.json"
    card.write_text(json.dumps({"license": "cc0-1.0", "limits": ["It is tiny."]}))
    script = str(ROOT / "launch" / "export.py")
    command = [sys.executable, script, str(sampled), f"--model={tmp_path / 'model'}"]
    command += ["--dtype=float16", f"--card={card}"]
    subprocess.run(command, check=True, env=environment(), cwd=ROOT)
    text = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    best = min(events(sampled, "heldout"), key=lambda event: event["perplexity"])
    run = json.loads((sampled / "environment.json").read_text(encoding="utf-8"))
    assert f"| steps | {best['step']:,} |" in text
    assert f"| held-out split | {best['perplexity']:.1f} |" in text
    assert f"{run['processor']}, {run['cores']} cores" in text
    assert f"torch {run['versions']['torch']}" in text
    assert run["corpus"] in text
    assert 'license: "cc0-1.0"' in text
    assert "- It is tiny." in text
    assert str(sampled) not in text


def test_run_starts_from_published_files_without_softmax(
    corpus: Path, sampled: Path, tmp_path: Path
) -> None:
    published = tmp_path / "published"
    export = [
        sys.executable,
        str(ROOT / "launch" / "export.py"),
        str(sampled),
        f"--published={published}",
        f"--model={tmp_path / 'model'}",
    ]
    subprocess.run([*export, "--without-softmax"], check=True, env=environment(), cwd=ROOT)
    assert json.loads((published / "options.json").read_text())["char_cnn"]["n_characters"] == 262
    start = f"train.init_from={published}"
    done = train_forked(corpus, tmp_path / "c" / "run", start, "train.max_steps=2")
    assert "the source has no softmax" in done.stderr
    again = subprocess.run(export, env=environment(), cwd=ROOT, capture_output=True, text=True)
    assert again.returncode == 2
    assert "exists" in again.stderr


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["evaluate.py", "--model", "{tmp}", "--corpus", "{corpus}"], "is neither a run"),
        (["evaluate.py", "--model", "{run}", "--corpus", "/nowhere"], "does not exist"),
        (["evaluate.py", "--model", "{run}", "--corpus", "{corpus}", "--split", "x"], "no split"),
        (["evaluate.py", "--model", "{run}", "--corpus", "{corpus}", "--rows", "0"], "--rows is 0"),
        (["export.py", "{tmp}", "--model", "{tmp}/m"], "no best model yet"),
        (["export.py", "{tmp}", "--model", "{tmp}/m", "--which", "newest"], "has no checkpoint"),
        (["export.py", "{run}"], "nothing to write"),
        (["export.py", "{run}", "--model", "{tmp}", "--overwrite"], "is not a model directory"),
        (["export.py", "{run}", "--published", "{tmp}/other"], "other/vocab.txt already exists"),
        (["convert.py", "to-published", "{run}/best", "{tmp}/file"], "is a file"),
        (["convert.py", "from-published", "{tmp}/o", "{tmp}/w", "{tmp}/m"], "No such file"),
    ],
)
def test_commands_reject_invalid_arguments(
    command: list[str], message: str, corpus: Path, sampled: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "vocab.txt").write_text("not a vocabulary")
    (tmp_path / "file").write_text("not a vocabulary")
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
    assert (tmp_path / "other" / "vocab.txt").read_text() == "not a vocabulary"


def test_evaluation_does_not_import_deepspeed() -> None:
    code = (
        "import sys, bilm.commands.evaluate, bilm.distributed.ranks, bilm.training.perplexity\n"
        "assert 'torch' in sys.modules and 'deepspeed' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=environment(), cwd=ROOT)
