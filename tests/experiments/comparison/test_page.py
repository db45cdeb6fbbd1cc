from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bilm.errors import CheckpointError
from experiments.comparison.page import write_page
from experiments.comparison.tasks import TASKS
from experiments.marked_pages import put_part


def write(path: Path, tree: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(tree))


def records(work: Path) -> None:
    """Write the records of two systems; the masked LM is ahead on AG News only."""
    for system, lead in (("bilm", 0.0), ("masked_lm", 0.01)):
        for task in TASKS:
            mean = 0.8 + (lead if task == "ag_news" else -lead)
            result = {"test": [mean - 0.01, mean, mean + 0.01], "validation": [mean] * 3}
            shares = {"0.1": result, "1.0": result}
            write(work / "scores" / f"{system}_{task}", {"metric": "accuracy", "shares": shares})
        training = {"parameters": 9e6, "seconds": 600.0, "words": 5e6, "words_per_second": 8333.0}
        tree = {"kind": system, "training": training, "versions": {"torch": "2.13.0"}}
        write(work / "systems" / system / "system.json", tree)
        point = {"step": 1, "seconds": 60.0, "words": 10, "loss": 5.0}
        write(work / "systems" / system / "curve.jsonl", point)
        facts = {"num_layers": 3, "dim": 256, "parameters": 5e6, "peak_memory_gib": 0.5}
        facts |= {"embedding_words_per_second": 12345.0, "bytes": 2e7, "cores": 2}
        facts |= {"machine": "x86_64", "python": "3.11.7"}
        write(work / "facts" / system, facts)
    trial = {"name": "base", "flags": [], "sst5": 0.3, "ner": 0.5, "pos": 0.8}
    write(work / "trials" / "masked_lm.json", {"trials": [trial], "chosen": "base", "flags": []})
    command = ["python", "-m", "module", "--output", str(work / "systems")]
    stage = {"name": "masked_lm_training", "command": command, "seconds": 700.0}
    write(work / "stages" / "masked_lm_training.json", {**stage, "peak_memory_gib": 1.25})
    write(work / "text" / "text.json", {"splits": {"train": {"words": 1e7, "sentences": 5e5}}})


def test_page_contains_only_recorded_figures(tmp_path: Path) -> None:
    work, page = tmp_path / "work", tmp_path / "docs" / "comparison.md"
    page.parent.mkdir()
    records(work)
    write_page(work, 10, page)
    text = page.read_text()
    assert "**81.00 ± 1.00**" in text
    assert (
        "- AG News, 10% of the labels: masked LM (transformers, BERT-style) by 1.00 points" in text
    )
    assert "CoNLL-2003 NER, 100%" not in text
    assert "12,345" in text
    assert "1.25" in text
    assert "0.50 epochs" in text
    assert "GloVe 50d" not in text
    assert str(work) not in text
    assert (page.parent / "comparison" / "learning_curves.png").stat().st_size > 1000


def test_text_outside_the_markers_is_kept(tmp_path: Path) -> None:
    work, page = tmp_path / "work", tmp_path / "docs" / "comparison.md"
    page.parent.mkdir()
    records(work)
    write_page(work, 10, page)
    page.write_text(page.read_text().replace("## Trials", "Own text.\n\n## Trials"))
    before = page.read_text()
    write_page(work, 10, page)
    assert page.read_text() == before


def test_rejects_a_page_without_markers() -> None:
    with pytest.raises(CheckpointError, match="figures: scores"):
        put_part("text", "scores", "table", Path("page.md"))


def test_rejects_a_directory_without_scores(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no scores"):
        write_page(tmp_path, 10, tmp_path / "page.md")
