from __future__ import annotations

import functools
import io
import json
import logging
import sys
import threading
from pathlib import Path

import pytest

from bilm.training import metrics
from bilm.training.metrics import MetricsLog
from bilm.training.perplexity import Perplexity

FIGURES = {"perplexity_sampled": 12.0, "words_per_second": 100.0, "gradient_norm": 1.0}


def test_drops_later_and_incomplete_lines(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, start=0, num_steps=10)
    for step in (1, 2, 3):
        log.train(step, FIGURES)
    log.close()
    path = tmp_path / "metrics.jsonl"
    deep = "[" * 100_000
    path.write_text(path.read_text() + f'{deep}\n{{"event": "train", "st')  # killed while writing
    log = MetricsLog(tmp_path, start=2, num_steps=10)
    log.train(3, FIGURES)
    log.heldout(3, Perplexity((1.0, 2.0), 5, 0.25, 8), 0.1)
    log.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["event"], line["step"]) for line in lines] == [
        ("train", 1),
        ("train", 2),
        ("train", 3),
        ("heldout", 3),
    ]
    assert lines[-1]["unknown_share"] == 0.25
    assert (lines[-1]["predictions"], lines[-1]["available_predictions"]) == (5, 8)


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_bar_advances_with_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    draw_always = functools.partial(metrics.tqdm, mininterval=0)
    monkeypatch.setattr(metrics, "tqdm", draw_always)
    log = MetricsLog(tmp_path, start=2, num_steps=10)
    for _ in range(3):
        log.advance()
    shown = terminal.getvalue()
    assert all(f"| {step}/10 [" in shown for step in (2, 3, 4, 5))
    log.train(5, FIGURES)
    log.close()
    assert "6/10" not in terminal.getvalue()
    assert "sampled ppl=12.0" in terminal.getvalue()


def test_states_that_subset_was_evaluated(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = MetricsLog(tmp_path, start=0, num_steps=10)
    log.heldout(3, Perplexity((1.0, 2.0), 5000, 0.25, 8000), 0.1)
    log.close()
    assert "a subset of 5,000 of 8,000 predictions" in caplog.text


def test_close_restores_thread_excepthook(tmp_path: Path) -> None:
    before = threading.excepthook
    log = MetricsLog(tmp_path, start=0, num_steps=10)
    assert threading.excepthook is not before
    log.close()
    assert threading.excepthook is before
