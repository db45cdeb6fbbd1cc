from __future__ import annotations

import json
import threading
from pathlib import Path

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
    log.heldout(3, Perplexity((1.0, 2.0), 5, 0.25), 0.1)
    log.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["event"], line["step"]) for line in lines] == [
        ("train", 1),
        ("train", 2),
        ("train", 3),
        ("heldout", 3),
    ]
    assert lines[-1]["unknown_share"] == 0.25


def test_close_restores_thread_excepthook(tmp_path: Path) -> None:
    before = threading.excepthook
    log = MetricsLog(tmp_path, start=0, num_steps=10)
    assert threading.excepthook is not before
    log.close()
    assert threading.excepthook is before
