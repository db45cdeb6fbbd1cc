from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.downstream.order_task import tiny_bilm


def summarize(directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "experiments.demo_summary", str(directory)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )


def write_run(directory: Path, events: list[dict[str, Any]]) -> None:
    (directory / "run").mkdir()
    lines = "".join(json.dumps(event) + "\n" for event in events)
    (directory / "run" / "metrics.jsonl").write_text(lines)


def write_grammar(directory: Path) -> None:
    (directory / "text").mkdir()
    grammar = {"heldout_limit_perplexity": 11.0, "vocabulary": 364}
    (directory / "text" / "grammar.json").write_text(json.dumps(grammar))


@pytest.mark.parametrize(
    ("events", "message"),
    [
        (None, "metrics.jsonl does not exist; run `make demo` first"),
        ([{"event": "train", "step": 1}], "has no held-out evaluation yet"),
    ],
)
def test_rejects_unfinished_demo(
    events: list[dict[str, Any]] | None, message: str, tmp_path: Path
) -> None:
    write_grammar(tmp_path)
    if events is not None:
        write_run(tmp_path, events)
    done = summarize(tmp_path)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def head(mix: str, validation: float, test: float) -> dict[str, Any]:
    scores = {"validation": {"accuracy": validation}, "test": {"accuracy": test}}
    history = {"validation_loss": [0.5, 0.1], "best_epoch": 2}
    return {"mix": mix, "scores": scores, "history": history}


def write_results(directory: Path, accuracies: dict[str, float]) -> None:
    """Write the results of the classifiers; a second head has a lower validation accuracy."""
    baselines = [
        {"name": name, "scores": {"test": {"accuracy": accuracies[name]}}}
        for name in ("tfidf", "untrained")
    ]
    pooled = [head("layer:0", 0.8, accuracies["layer:0"]), head("trainable", 0.9, 0.93)]
    encoder = [head("trainable", 0.8, 0.5), head("trainable", 0.9, accuracies["recommended"])]
    trees: dict[str, dict[str, Any]] = {
        "baselines": {"baselines": baselines},
        "pooled": {"outcomes": pooled},
        "classifier": {"outcomes": encoder, "texts": {"train": 1800, "test": 1000}},
    }
    for name, tree in trees.items():
        (directory / name).mkdir()
        (directory / name / "results.json").write_text(json.dumps(tree))


@pytest.mark.parametrize(
    ("changed", "code"), [({}, 0), ({"tfidf": 0.995}, 1), ({"untrained": 0.995}, 1)]
)
def test_compares_recommended_classifier_with_the_others(
    changed: dict[str, float], code: int, tmp_path: Path
) -> None:
    write_grammar(tmp_path)
    perplexities = dict.fromkeys(("perplexity", "perplexity_forward", "perplexity_backward"), 11.5)
    write_run(tmp_path, [{"event": "heldout", **perplexities}])
    tiny_bilm().save_pretrained(tmp_path / "run" / "best")
    accuracies = {"tfidf": 0.946, "untrained": 0.91, "layer:0": 0.86, "recommended": 0.99}
    write_results(tmp_path, accuracies | changed)
    done = summarize(tmp_path)
    assert done.returncode == code, done.stdout + done.stderr
    assert "accuracy on 1,000 test texts ± standard error" in done.stdout
    assert "biLSTM on the trained biLM (recommended)              99.0% ± 0.3%" in done.stdout
    assert ("is not ahead" in done.stdout) == (code == 1)
