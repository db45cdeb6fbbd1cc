"""The second biLM of a task: `english-small`, trained further on news, and on the task's text.

The paper did this for most of its tasks, without the labels. The text is Reuters-21578, the
training texts of AG News, and the words of the training sentences of the task, twice. It has no
test sentences.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path

from bilm.errors import CheckpointError
from bilm.files.strict_json import read_json
from bilm.files.writing import atomic_file, write_text
from bilm.text.lines import LineReader
from downstream.reports.pages import markdown_table
from downstream.texts.tagged import TagReading, read_tagged
from experiments.adaptation import Adaptation, AdaptationFacts
from experiments.task_table.plan import TEXTS, TaskPlan

REUTERS = "lm/reuters21578.txt.gz"
AG_NEWS = "ag_news/train.csv.gz"


def adaptation_of(plan: TaskPlan, work: Path) -> Adaptation:
    """Return the stages that train the second biLM of a task."""
    assert plan.domain is not None
    return Adaptation(plan.domain, work / TEXTS / f"{plan.domain.name}.txt", work)


def adapt(plan: TaskPlan, data: Path, work: Path, records: Path) -> None:
    """Train the second biLM of a task, unless it is recorded, and record what it achieved."""
    record = record_path(plan, records)
    if plan.domain is None or record.is_file():
        return
    adaptation = adaptation_of(plan, work)
    with atomic_file(adaptation.text) as path, path.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in news_lines(plan, data, work))
    facts = adaptation.run()
    write_text(record, json.dumps(facts._asdict(), indent=1) + "\n")


def news_lines(plan: TaskPlan, data: Path, work: Path) -> Iterator[str]:
    """Yield the lines of the text, without line feeds."""
    yield from LineReader(data / REUTERS).lines()
    with gzip.open(data / AG_NEWS, "rb") as raw:
        for _, *parts in csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline="")):
            yield " ".join(parts).replace("\n", " ").replace("\\", " ")
    train = plan.paths(data, work)[0]
    assert train is not None
    sentences = read_tagged(train, TagReading()).sentences
    for _ in range(2):
        yield from (" ".join(words) for words in sentences)


def record_path(plan: TaskPlan, records: Path) -> Path:
    """Return the path of the record."""
    return records / f"{plan.name}_adaptation.json"


def adaptation_table(plan: TaskPlan, records: Path) -> str:
    """Return the perplexity before and after, if it is recorded."""
    path = record_path(plan, records)
    if not path.is_file():
        return ""
    facts = AdaptationFacts(**read_json(path, CheckpointError))
    return markdown_table(
        [
            ["words", "minutes", "perplexity before", "perplexity after"],
            [
                f"{facts.words:,}",
                f"{facts.minutes:.0f}",
                f"{facts.perplexity_before:.1f}",
                f"{facts.perplexity_after:.1f}",
            ],
        ]
    )
