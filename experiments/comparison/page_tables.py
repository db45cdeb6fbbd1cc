"""The tables and generated paragraphs of docs/comparison.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from downstream.reports.pages import markdown_table, percent
from experiments.comparison.records import Records, lead_points
from experiments.comparison.systems import SYSTEMS
from experiments.comparison.tasks import TASKS
from experiments.comparison.trials import TRIAL_TASKS, mean_score

OWN = "bilm"

LONGER = "english_small"  # trained for another time, so it is not compared with OWN

ALL_LABELS = "1.0"


def score_table(records: Records, share: str) -> str:
    """Return the test scores with a share of the labels; the best mean of each task is bold."""
    best = {task: max(_means(records, task, share), default=0.0) for task in TASKS}
    rows = [["system", *(f"{task.title}, {task.metric}" for task in TASKS.values())]]
    for system in records.systems:
        cells = []
        for task in TASKS:
            result = records.test(system, task, share)
            cell = "" if result is None else percent(result[0], result[1])
            is_best = result is not None and result[0] == best[task]
            cells.append(f"**{cell}**" if is_best else cell)
        rows.append([SYSTEMS[system].title, *cells])
    return markdown_table(rows)


def _means(records: Records, task: str, share: str) -> list[float]:
    found = (records.test(system, task, share) for system in records.systems)
    return [result[0] for result in found if result is not None]


def share_tables(records: Records) -> str:
    """Return a table for each share of the labels that is less than all."""
    parts = []
    for share in records.shares():
        if share != ALL_LABELS:
            heading = f"### {100 * float(share):g}% of the labels"
            parts.append(f"{heading}\n\n{score_table(records, share)}")
    return "\n\n".join(parts)


def facts_table(records: Records) -> str:
    """Return sizes, throughput and memory of each system."""
    rows = [
        [
            "system",
            "weights (training)",
            "weights (features)",
            "features",
            "training minutes",
            "words read",
            "words/s, training",
            "words/s, embedding",
            "GiB, training",
            "GiB, embedding",
            "MB on disk",
        ]
    ]
    for system, tree in records.systems.items():
        training, facts = tree["training"], records.facts.get(system, {})
        shape = f"{facts['num_layers']} x {facts['dim']}" if facts else ""
        rows.append(
            [
                SYSTEMS[system].title,
                _millions(training.get("parameters")),
                _millions(facts.get("parameters")),
                shape,
                _number(training.get("seconds"), 1 / 60, 0),
                _millions(training.get("words")),
                _number(training.get("words_per_second"), 1, 0),
                _number(facts.get("embedding_words_per_second"), 1, 0),
                _number(records.training_memory_gib(system), 1, 2),
                _number(facts.get("peak_memory_gib"), 1, 2),
                _number(facts.get("bytes"), 1e-6, 0),
            ]
        )
    return markdown_table(rows)


def _number(value: float | None, scale: float, digits: int) -> str:
    return "" if value is None else f"{value * scale:,.{digits}f}"


def _millions(value: float | None) -> str:
    return "" if value is None else f"{value / 1e6:,.1f} M"


def trials_table(records: Records) -> str:
    """Return the validation scores of all trials."""
    rows = [["system", "trial", *(TASKS[task].title for task in TRIAL_TASKS), "mean", "chosen"]]
    for system, tree in records.trials.items():
        for trial in tree["trials"]:
            chosen = "yes" if trial["name"] == tree["chosen"] else ""
            name = " ".join(trial["flags"]) or "base"
            scores = [percent(trial[task]) for task in TRIAL_TASKS]
            rows.append([system, name, *scores, percent(mean_score(trial)), chosen])
    return markdown_table(rows)


def losses_paragraph(records: Records) -> str:
    """Name every task and share at which another system has a higher mean than the biLM."""
    lines = []
    for share in records.shares():
        for task, described in TASKS.items():
            own = records.test(OWN, task, share)
            if own is None:
                continue
            ahead = []
            for system in records.systems:
                other = records.test(system, task, share)
                if system not in (OWN, LONGER) and other is not None and other[0] > own[0]:
                    points = 100 * (other[0] - own[0])
                    ahead.append(f"{SYSTEMS[system].title} by {points:.2f}")
            if ahead:
                labels = f"{100 * float(share):g}% of the labels"
                lines.append(f"- {described.title}, {labels}: {'; '.join(ahead)} points")
    if not lines:
        return "No other system has a higher mean than the biLM on any task at any share."
    return "Other systems have a higher mean than the biLM here:\n\n" + "\n".join(lines)


def system_paragraphs(records: Records) -> str:
    """Return a list with one factual entry per system."""
    return "\n".join(f"- {_described(records, system)}" for system in records.systems)


def _described(records: Records, system: str) -> str:
    tree = records.systems[system]
    training = tree["training"]
    sentences = []
    if "seconds" in training:
        sentences.append(
            f"It read {training['words'] / 1e6:.1f} million words in "
            f"{training['seconds'] / 60:.0f} minutes of training "
            f"({training['words_per_second']:,.0f} words per second)"
            + _epochs(records, training["words"])
        )
    settings = _settings(tree.get("settings", {}))
    if settings:
        sentences.append(f"Settings: {settings}.")
    if system not in (OWN, LONGER) and OWN in records.systems:
        for share in records.shares():
            lead = lead_points(records, system, OWN, share)
            if lead is not None:
                sentences.append(
                    f"With {100 * float(share):g}% of the labels, its mean over the tasks is "
                    f"{abs(lead):.2f} points {'above' if lead > 0 else 'below'} that of the biLM."
                )
    return f"**{SYSTEMS[system].title}.** {' '.join(sentences)}".rstrip()


def _epochs(records: Records, words: int) -> str:
    return f", {words / records.text['splits']['train']['words']:.2f} epochs of the text."


def _settings(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items() if name != "kind")


def commands_table(records: Records, hidden: Sequence[tuple[str, str]]) -> str:
    """Return the final training commands and the cost of every stage.

    `hidden` are pairs of a path and the name that replaces it.
    """
    lines = []
    for stage in records.stages:
        if stage["name"].split("_training")[0] in SYSTEMS and "_training" in stage["name"]:
            command = " ".join(stage["command"])
            for path, name in hidden:
                command = command.replace(path, name)
            lines.append(command)
    rows = [["stage", "seconds", "peak memory (GiB)"]]
    for stage in records.stages:
        cells = [f"{stage['seconds']:.0f}", f"{stage['peak_memory_gib']:.2f}"]
        rows.append([stage["name"], *cells])
    commands = "```text\n" + "\n".join(lines) + "\n```\n\n" if lines else ""
    total = sum(stage["seconds"] for stage in records.stages) / 60
    return f"{commands}{markdown_table(rows)}\n\n{total:.0f} minutes in total."
