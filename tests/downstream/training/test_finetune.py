from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from bilm.errors import CheckpointError
from bilm.pretrained.digests import model_digest
from bilm.pretrained.model_directory import PretrainedBiLm
from downstream.classify import main
from tests.conftest import ROOT
from tests.downstream.order_task import order_texts, tiny_bilm, write_csv


def flags(place: Path) -> list[str]:
    write_csv(place / "train.csv", order_texts(400, 1))
    write_csv(place / "test.csv", order_texts(40, 2))
    return [
        "--model",
        str(place / "model"),
        "--train",
        str(place / "train.csv"),
        "--test",
        str(place / "test.csv"),
        "--output",
        str(place / "report"),
        "--finetune",
        "--finetune-epochs=3",
        "--finetune-learning-rate=0.2",
        "--finetune-batch-size=4",
        "--finetune-heldout=0.1",
        "--epochs=1",
    ]


@pytest.mark.slow
@pytest.mark.launch
def test_fine_tuned_model_is_used_and_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_bilm().save_pretrained(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    main(flags(Path()))  # with relative paths
    tree = json.loads((tmp_path / "report" / "results.json").read_text("utf-8"))
    tuned = tree["finetuned"]
    # An untrained model guesses among the 11 words of the vocabulary; the text has 8 of them.
    assert 8 < tuned["perplexity_before"] < 16
    assert tuned["perplexity_after"] < 0.8 * tuned["perplexity_before"]
    used = model_digest(PretrainedBiLm.from_pretrained(tuned["model"]))
    assert tree["bilm"]["digest"] == used != model_digest(tiny_bilm())
    assert "before" in (tmp_path / "report" / "report.md").read_text("utf-8")
    # A second run uses the cached model and starts no training.
    (run,) = (tmp_path / "representations").glob("finetuned-*/run/metrics.jsonl")
    written = run.stat().st_mtime_ns
    main([*flags(Path()), "--overwrite"])
    assert run.stat().st_mtime_ns == written


def test_rejects_model_without_softmax(tmp_path: Path) -> None:
    model = tiny_bilm()
    PretrainedBiLm(model.model.without_softmax(), None, model.tokenizer).save_pretrained(
        tmp_path / "model"
    )
    with pytest.raises(CheckpointError, match="cannot be trained as a language model"):
        main(flags(tmp_path))


def test_reports_full_disk(tmp_path: Path) -> None:
    """Simulate a full disk with a limit on file sizes."""
    tiny_bilm().save_pretrained(tmp_path / "model")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))

    command = [sys.executable, "-m", "downstream.classify", *flags(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, preexec_fn=limit)
    assert done.returncode == 2, done.stderr
    assert "error: --finetune cannot write" in done.stderr
    assert "bytes needed" in done.stderr
    assert "Traceback" not in done.stderr
