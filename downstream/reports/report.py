"""The report of a task: results, a page, plots, a model card and the trained head.

What depends on the task is a `TaskPage`; everything else is the same for all tasks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bilm.distributed.process import peak_memory_bytes
from bilm.errors import CheckpointError
from bilm.files.writing import atomic_directory, write_text
from downstream.heads.saved_head import save_head
from downstream.reports.curves import (
    CurveNames,
    SelectedHead,
    curves_note,
    plot_curves,
    plot_shares,
)
from downstream.reports.pages import (
    RESULTS_FILE,
    draw_pictures,
    literal,
    markdown_table,
    percent,
    plain_number,
    plain_numbers,
    without_pictures,
)
from downstream.reports.results_tree import results_tree
from downstream.settings.common import TaskSettings
from downstream.tasks.splits import SPLITS
from downstream.tasks.task import Task
from downstream.training.experiment import (
    AnyScores,
    AnySettings,
    Outcome,
    Results,
    run,
    spread_of,
)

_SHOWN_CONFUSIONS = 15

_LEARNED_NOTE = (
    " For `learned`, the share of a layer is its share of the squared norm of the first weight "
    "matrix; it is not a weight in a sum."
)


class Column(NamedTuple):
    """A column of the comparison of mixes: a score of a split, and its heading."""

    split: str
    figure: str
    heading: str
    is_share: bool = True  # printed in percent


@dataclass(frozen=True)
class TaskPage:
    """The parts of a report that depend on the task."""

    title: str
    introduction: str
    comparison: str  # the paragraph before the comparison of mixes
    columns: Sequence[Column]  # of the comparison of mixes
    figures: Mapping[str, str]  # the scores in tables, and their headings
    selection: str  # the sentence about how the best head was selected
    details: Sequence[str]  # paragraphs about the best head
    card: Sequence[str]  # paragraphs of the model card
    tree: Mapping[str, Any]  # fields of results.json
    pictures: Mapping[str, Callable[[Path], None]] = field(default_factory=dict)  # by file name
    files: Mapping[str, str] = field(default_factory=dict)  # further text files
    loss: str = "cross-entropy"  # the name of the loss in plots
    score: str = "accuracy"  # the name of the main score
    training_scored: bool = False  # the score in training is the same measure
    plain_figures: Sequence[str] = ()  # the scores that are not printed in percent


CLASSIFICATION_COLUMNS = (
    Column("validation", "accuracy", "validation"),
    Column("test", "accuracy", "test"),
    Column("test", "macro_f1", "macro F1"),
)


def run_and_report(
    settings: AnySettings,
    task: Task[AnySettings, AnyScores],
    page_of: Callable[[Results[AnyScores]], TaskPage],
    progress: bool | None,
) -> str:
    """Train the heads of a task, write the report, and return a summary for the terminal."""
    model = None if settings.model is None else Path(settings.model)
    results = run(settings, task, model, progress)
    page = page_of(results)
    write_report(results, settings, page)
    best = results.chosen().outcome
    return (
        f"{summary_table(results, page.columns)}\n\nbest by validation: {best.mix}, seed "
        f"{best.seed}; test {page.score} {best.scores['test'].main:.2%}\n"
        f"report: {Path(settings.output) / 'report.md'}\n"
    )


def write_report(
    results: Results[Any],
    settings: TaskSettings,
    page: TaskPage,
    finetuned: dict[str, Any] | None = None,
) -> None:
    """Write all files of the report, atomically."""
    chosen = results.chosen()
    with atomic_directory(Path(settings.output), CheckpointError, settings.overwrite) as directory:
        fields = {**page.tree, "finetuned": finetuned}
        tree = results_tree(results, settings, fields, list(page.figures))
        write_text(directory / RESULTS_FILE, json.dumps(tree, indent=1, allow_nan=False) + "\n")
        failures = draw_pictures(_pictures(results, page), directory)
        text = _page(results, settings, page, finetuned)
        write_text(directory / "report.md", without_pictures(text, failures))
        write_text(directory / "model_card.md", "\n\n".join(page.card) + "\n")
        for name, text in page.files.items():
            write_text(directory / name, text)
        save_head(chosen.description, chosen.model, directory)


def summary_table(results: Results[Any], columns: Sequence[Column] = CLASSIFICATION_COLUMNS) -> str:
    """Return a table with a row per mix: scores with their spread, layer weights, gamma."""
    rows = [["mix", *(column.heading for column in columns), "layers", "gamma"]]
    for mix, outcomes in results.by_mix().items():
        figures = [_cell(outcomes, column) for column in columns]
        layers = {
            place: " ".join(f"{share:.2f}" for share in shares)
            for place, shares in _mean_shares(outcomes).items()
        }
        gammas = {
            place: f"{sum(o.gammas[place] for o in outcomes) / len(outcomes):.2f}"
            for place in outcomes[0].gammas
        }
        rows.append([mix, *figures, _by_place(layers), _by_place(gammas)])
    return markdown_table(rows)


def _by_place(cells: Mapping[str, str]) -> str:
    """Join what a mix has at the input and at the output; a single place is not named."""
    if len(cells) == 1:
        return next(iter(cells.values()))
    return "; ".join(f"{place} {cell}" for place, cell in cells.items()) or "-"


def class_table(rows: Mapping[str, Any], heading: str, unit: str) -> str:
    """Return a table of precision, recall, F1 and support by class or type."""
    table = [[heading, "precision", "recall", "F1", unit]]
    for name, scores in rows.items():
        figures = [f"{100 * x:.2f}" for x in (scores.precision, scores.recall, scores.f1)]
        table.append([literal(name), *figures, f"{scores.support:,}"])
    return markdown_table(table)


def confusion_table(confusions: Iterable[tuple[str, str, int]], unit: str) -> str:
    """Return a table of the most frequent confusions: true label, predicted label, count."""
    rows = [
        [literal(truth), literal(predicted), f"{count:,}"] for truth, predicted, count in confusions
    ]
    if not rows:
        return f"None of the {unit} has a wrong label."
    table = markdown_table([["true label", "predicted label", unit], *rows[:_SHOWN_CONFUSIONS]])
    if len(rows) <= _SHOWN_CONFUSIONS:
        return table
    return f"The {_SHOWN_CONFUSIONS} most frequent confusions:\n\n{table}"


def _pictures(results: Results[Any], page: TaskPage) -> dict[str, Callable[[Path], None]]:
    """Return the functions that draw the plots of the task and those of all tasks."""
    histories = {mix: [o.history for o in all_] for mix, all_ in results.by_mix().items()}
    best = results.chosen().outcome
    place = [outcome.seed for outcome in results.by_mix()[best.mix]].index(best.seed)
    selected = SelectedHead(best.mix, place, best.seed)
    pictures = {
        **page.pictures,
        "curves.png": lambda path: plot_curves(histories, path, _curve_names(page), selected),
    }
    if shares := _labelled_shares(results):
        pictures["mix.png"] = partial(plot_shares, shares)
    return pictures


def _learned_note(results: Results[Any]) -> str:
    """Return the explanation of the shares of `learned`, if it is one of the mixes."""
    return _LEARNED_NOTE if "learned" in results.by_mix() else ""


def _curve_names(page: TaskPage) -> CurveNames:
    return CurveNames(page.loss, page.score, page.training_scored)


def _mean_shares(outcomes: Sequence[Outcome[Any]]) -> dict[str, list[float]]:
    """Return the share of each layer, averaged over seeds, for each place where a mix enters."""
    result = {}
    for place in outcomes[0].shares:
        columns = zip(*(outcome.shares[place] for outcome in outcomes), strict=True)
        result[place] = [sum(column) / len(outcomes) for column in columns]
    return result


def _labelled_shares(results: Results[Any]) -> dict[str, list[float]]:
    """Return the mean shares of all mixes; those of two places are labelled with the place."""
    return {
        mix if len(outcomes[0].shares) == 1 else f"{mix} ({place})": shares
        for mix, outcomes in results.by_mix().items()
        for place, shares in _mean_shares(outcomes).items()
    }


def _page(
    results: Results[Any],
    settings: TaskSettings,
    page: TaskPage,
    finetuned: dict[str, Any] | None,
) -> str:
    best = results.chosen().outcome
    parts = [
        f"# {page.title}",
        page.introduction,
        "## Comparison of mixes",
        f"{page.comparison}{_learned_note(results)}",
        summary_table(results, page.columns),
    ]
    if _labelled_shares(results):
        parts.append("![layer weights](mix.png)")
    if finetuned is not None:
        parts += [
            "## Fine-tuning of the biLM",
            "Held-out perplexity on the texts of the task: "
            f"{finetuned['perplexity_before']:.2f} before, {finetuned['perplexity_after']:.2f} "
            "after.",
        ]
    parts += [
        f"## Best head: `{best.mix}`, seed {best.seed}",
        page.selection,
        _split_table(best, page),
        *page.details,
        "## Learning curves",
        curves_note(_curve_names(page)),
        "![learning curves](curves.png)",
        "## Cost",
        f"Representations {results.seconds['representations']:.1f} s, heads "
        f"{results.seconds['heads']:.1f} s; peak memory {peak_memory_bytes() / 2**30:.2f} GiB.",
        "## Settings",
        f"```json\n{settings.model_dump_json(indent=2)}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _split_table(outcome: Outcome[Any], page: TaskPage) -> str:
    rows = [["split", *page.figures.values()]]
    for split in SPLITS:
        values = {name: getattr(outcome.scores[split], name) for name in page.figures}
        cells = [
            plain_number(value) if name in page.plain_figures else f"{100 * value:.2f}"
            for name, value in values.items()
        ]
        rows.append([split, *cells])
    return markdown_table(rows)


def _cell(outcomes: Sequence[Outcome[Any]], column: Column) -> str:
    mean, std = spread_of(outcomes, column.split, column.figure)
    if column.is_share:
        return percent(mean, std if len(outcomes) > 1 else None)
    return " ± ".join(plain_numbers([mean, std])) if len(outcomes) > 1 else plain_number(mean)
