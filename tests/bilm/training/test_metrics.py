from __future__ import annotations

import json
from pathlib import Path

from bilm.training.metrics import Meters, MetricsLog
from bilm.training.perplexity import Perplexity

FIGURES = {"perplexity_sampled": 12.0, "words_per_second": 100.0, "gradient_norm": 1.0}


def test_lines_of_a_lost_future_and_half_lines_are_dropped(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path, start=0, num_steps=10)
    for step in (1, 2, 3):
        log.train(step, FIGURES)
    log.close()
    path = tmp_path / "metrics.jsonl"
    deep = "[" * 100_000
    path.write_text(path.read_text() + f'{deep}\n{{"event": "train", "st')  # killed in mid-write
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


def test_meters_survive_json_exactly() -> None:
    meters = Meters()
    meters.add(loss_0=0.1, steps=1.0)
    meters.add(loss_0=0.2, steps=1.0)
    again = Meters(json.loads(json.dumps(meters.sums)))
    for m in (meters, again):
        m.add(loss_0=1e-17)
    assert meters.take() == again.take() == {"loss_0": 0.1 + 0.2 + 1e-17, "steps": 2.0}
    assert meters.take() == {}


def test_perplexity_is_the_geometric_mean() -> None:
    perplexity = Perplexity((1.0, 3.0), 10, 0.0)
    assert (
        abs(
            perplexity.mean**2
            - perplexity.by_direction["forward"] * perplexity.by_direction["backward"]
        )
        < 1e-9
    )
