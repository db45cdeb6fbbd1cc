"""Measure `bilm tasks predict`: it reads the test texts of each task with a head of the table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bilm.errors import CheckpointError
from bilm.files.strict_json import read_json
from bilm.files.writing import write_text
from downstream.reports.pages import markdown_table
from downstream.texts.documents import read_documents
from downstream.texts.roles import read_roles
from downstream.texts.tagged import TagReading, read_tagged
from experiments.stages import Stages
from experiments.task_table.heads import Heads, Places
from experiments.task_table.outcomes import is_recorded
from experiments.task_table.plan import AT_INPUT, TaskPlan


class PredictionRecord(NamedTuple):
    """The cost of one command."""

    predictions: int  # lines of its output
    seconds: float
    peak_memory_gib: float


def measure_predictions(plans: Sequence[TaskPlan], places: Places) -> None:
    """Predict with the heads with ELMo at the input, one command at a time, and keep records."""
    stages = Stages(places.work)
    for plan in plans:
        head = places.work / Heads(plan, AT_INPUT).name
        record = record_path(plan, places.records)
        output = places.work / f"{plan.name}_predictions.jsonl"
        source = _input(plan, places)
        command = ["python", "-m", "downstream.predict", "--head", str(head)]
        command += ["--input", str(source), "--output", str(output)]
        portable = places.portable(command)
        if is_recorded(record, portable):
            print(f"{record.stem}: already recorded", flush=True)
            continue
        if not head.is_dir():
            print(f"{record.stem}: not measured, because {head} does not exist", flush=True)
            continue
        _write_input(plan, places, source)
        done = stages.run(record.stem, [*command, "--overwrite"])  # it may have been interrupted
        with output.open("rb") as lines:
            num_lines = sum(1 for _ in lines)
        tree = {
            "command": portable,
            "predictions": num_lines,
            "seconds": done.seconds,
            "processor_seconds": done.processor_seconds,
            "peak_memory_gib": done.peak_memory_gib,
        }
        write_text(record, json.dumps(tree, indent=1) + "\n")


def record_path(plan: TaskPlan, records: Path) -> Path:
    """Return the path of the record of a task."""
    return records / f"{plan.name}_predict.json"


def predictions_table(plans: Sequence[TaskPlan], records: Path) -> str:
    """Return the time and the peak memory of the commands that have records, if there are any."""
    rows = [["test texts of", "predictions", "time", "peak memory"]]
    for plan in plans:
        path = record_path(plan, records)
        if path.is_file():
            tree: dict[str, Any] = read_json(path, CheckpointError)
            own = PredictionRecord(*(tree[name] for name in PredictionRecord._fields))
            cost = (f"{own.seconds:.0f} s", f"{own.peak_memory_gib:.1f} GiB")
            rows.append([plan.title, f"{own.predictions:,}", *cost])
    return markdown_table(rows) if len(rows) > 1 else "No predictions have been measured."


def _input(plan: TaskPlan, places: Places) -> Path:
    """Return the file to read: the test file, or a file of its words if the former has tags."""
    if plan.module in _WORDS_OF:
        return places.work / f"{plan.name}_words.jsonl"
    return plan.test_path(places.data, places.work)


def _write_input(plan: TaskPlan, places: Places, path: Path) -> None:
    """Write the words of the test file as JSON lines, if `_input` is such a file."""
    words_of = _WORDS_OF.get(plan.module)
    if words_of is not None:
        test = plan.test_path(places.data, places.work)
        lines = (json.dumps({"text": words}) for words in words_of(test))
        write_text(path, "\n".join(lines) + "\n")


def _words_of_tagged(path: Path) -> Iterable[Sequence[str]]:
    return read_tagged(path, TagReading()).sentences


def _words_of_roles(path: Path) -> Iterable[Sequence[str]]:
    return read_roles(path).sentences


def _words_of_documents(path: Path) -> Iterable[Sequence[str]]:
    for document in read_documents(path).documents:
        yield [word for sentence in document.sentences for word in sentence]


_WORDS_OF: dict[str, Callable[[Path], Iterable[Sequence[str]]]] = {  # by module
    "downstream.tag": _words_of_tagged,
    "downstream.srl": _words_of_roles,
    "downstream.coref": _words_of_documents,
}
