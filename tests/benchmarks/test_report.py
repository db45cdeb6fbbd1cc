"""The page docs/performance.md."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

from report import PAGE, read_figures
from report_page import write_page
from report_runs import contention_part, serving_part
from report_table import ratio
from rounds import summary

MACHINE = {
    "benchmark": "machine",
    "date": "2026-01-01",
    "processor": "Processor A",
    "cores": 2,
    "memory_gib": 8,
    "python": "3.11",
    "torch": "2",
    "deepspeed": "0",
}


def paragraphs_of(figures: list[dict[str, Any]], path: Path) -> list[str]:
    write_page(figures, path)
    return path.read_text(encoding="utf-8").split("\n\n")


def test_page_of_the_project_is_written_from_its_figures(tmp_path: Path) -> None:
    write_page(read_figures(), tmp_path / "performance.md")
    assert (tmp_path / "performance.png").exists()
    assert (tmp_path / "performance.md").read_text(encoding="utf-8") == PAGE.read_text("utf-8")


def test_every_table_has_its_own_processor(tmp_path: Path) -> None:
    figures = [
        MACHINE,
        {"benchmark": "loader", "command": "python benchmarks/loader.py"},
        {"benchmark": "loader", "figure": "verify", "seconds": 1.0},
        {"benchmark": "build_corpus", "command": "python b.py", "processor": "Processor B"},
        {"benchmark": "build_corpus", "repeats": 1},
        {"benchmark": "deepspeed_step", "command": "python d.py", "processor": "Processor C"},
        {
            "benchmark": "deepspeed_step",
            "config": "news",
            "name": "one rank",
            "than": "isolated",
            **summary([0.9, 1.0, 0.95]),
        },
    ]
    paragraphs = paragraphs_of(figures, tmp_path / "performance.md")
    captions = [
        after for before, after in pairwise(paragraphs) if before.startswith(("| ", "```json"))
    ]
    processors = [f"Measured on: Processor {letter}." for letter in "CCBA"]
    assert captions == processors
    assert not any("## LSTM" in paragraph for paragraph in paragraphs)


def test_marks_noisy_ratios() -> None:
    assert ratio(summary([2.0] * 6)) == ("2.00 (2.00 to 2.00)", 6, "0.0%")
    assert ratio(summary([2.0, 3.0] * 3))[2] == "**too noisy: 40.0%**"


def test_contention_table_marks_noisy_rows() -> None:
    own = {"workload": "news", "busy": 1, "contender": "default", "words_per_second": 1234.5}
    own |= {"times": 1.5, "kept": 0.9, "spread": 0.2, "rounds": 15, "is_too_noisy": True}
    table = contention_part([{"processor": "Processor A"}, own])[-1]
    row = "| news | 1 | default | 1,234 | 1.50 | 0.90 | 15 | **too noisy: 20.0%** |"
    assert table.splitlines()[2:] == [row]


def test_serving_tables() -> None:
    client = {"contender": "1 client", "words_per_second": 1234, "median_seconds": 0.002}
    client |= {"seconds_99": 0.25, "answers": 10, "wrong_answers": 0}
    call = {"contender": "one call", "words_per_second": 5678}
    pair = {"name": "64 clients", "than": "1 client", **summary([3.0, 3.1, 3.2])}
    memory = {"requests": 1000, "wrong_answers": 0, "memory_mib": [100, 101]}
    speeds, ratios, growth = serving_part([client, call, pair, memory])[-3:]
    rows = ["| 1 client | 1,234 | 2 ms | 0.25 s | 0 |", "| one call | 5,678 |  |  |  |"]
    assert speeds.splitlines()[2:] == rows
    assert ratios.splitlines()[2].startswith("| 64 clients | 1 client | 3.10 (3.00 to 3.20) |")
    assert growth.splitlines()[2:] == ["| 1,000 | 100, 101 | 0 |"]
