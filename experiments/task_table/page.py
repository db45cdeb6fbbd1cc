"""Write the tables of docs/tasks.md from the results of the heads."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from bilm.files.writing import write_text
from downstream.reports.pages import markdown_table, new_figure, percent, save_figure
from experiments.marked_pages import put_part
from experiments.task_table.adapted import adaptation_table
from experiments.task_table.heads import Heads, all_heads
from experiments.task_table.outcomes import HeadResults, epochs_to_reach, read_record
from experiments.task_table.plan import (
    ADAPTED,
    AT_BOTH,
    AT_INPUT,
    BASELINE,
    COMPARED,
    SHARES,
    TASKS,
    VARIANTS,
    TaskPlan,
)
from experiments.task_table.predictions import predictions_table

ROOT = Path(__file__).resolve().parents[2]

PAGE = ROOT / "docs" / "tasks.md"

PICTURE = ROOT / "docs" / "results" / "task_mixes.png"

Results = dict[str, HeadResults]  # by variant


def write_page(records: Path) -> None:
    """Replace the tables between the markers of the page.

    A task is in them if its baseline and its heads with ELMo at the input have been trained.
    """
    measured: list[tuple[TaskPlan, Results]] = []
    for plan in TASKS:
        variants = (*VARIANTS, ADAPTED)
        read = {variant: _results(records, Heads(plan, variant)) for variant in variants}
        results = {variant: own for variant, own in read.items() if own is not None}
        if {BASELINE, AT_INPUT} <= results.keys():
            measured.append((plan, results))
        else:
            print(f"{plan.name}: not finished, so it is left out of the page")
    if not measured:
        return
    plot_mixes(measured)
    text = PAGE.read_text(encoding="utf-8")
    for name, write in PARTS.items():
        text = put_part(text, name, write(measured), PAGE)
    text = put_part(text, "task_shares", shares_table(measured, records), PAGE)
    text = put_part(text, "task_costs", costs_table(measured, records), PAGE)
    adaptations = (adaptation_table(plan, records) for plan in TASKS)
    text = put_part(text, "task_adaptation", "\n\n".join(filter(None, adaptations)), PAGE)
    text = put_part(text, "task_predictions", predictions_table(TASKS, records), PAGE)
    write_text(PAGE, text)


def _results(records: Path, heads: Heads) -> HeadResults | None:
    return read_record(records / f"{heads.name}.json")


def main_table(measured: Sequence[tuple[TaskPlan, Results]]) -> str:
    """Return the table of baselines and ELMo, beside the figures of the paper."""
    head = ["task", "score", "seeds", "baseline", "+ ELMo", "gain", "errors removed"]
    rows = [[*head, "paper: baseline", "paper: + ELMo"]]
    for plan, results in measured:
        for variant, title in ((AT_INPUT, plan.title), (ADAPTED, f"{plan.title}: biLM of news")):
            if variant in results:
                rows.append(_main_row(plan, title, results[BASELINE], results[variant]))
    return markdown_table(rows)


def _main_row(
    plan: TaskPlan, title: str, baseline: HeadResults, with_elmo: HeadResults
) -> list[str]:
    (base, base_spread), (elmo, spread) = baseline.score("test"), with_elmo.score("test")
    paper = plan.paper
    return [
        title,
        plan.score,
        str(plan.seeds),
        percent(base, base_spread),
        percent(elmo, spread),
        f"{100 * (elmo - base):+.2f}",
        f"{100 * (elmo - base) / (1 - base):.1f}%",
        "" if paper is None else f"{paper.baseline} ({paper.data})",
        "" if paper is None else f"{paper.elmo}",
    ]


def settings_table(measured: Sequence[tuple[TaskPlan, Results]]) -> str:
    """Return the command of each task, and its flags besides those of files, mixes and costs."""
    rows = [["task", "command", "flags"]]
    for plan, _ in measured:
        command = plan.module.removeprefix("downstream.")
        flags = f"`{' '.join(plan.flags)}`" if plan.flags else ""
        rows.append([plan.title, f"`bilm tasks {command}`", flags])
    return markdown_table(rows)


def places_table(measured: Sequence[tuple[TaskPlan, Results]]) -> str:
    """Return the test scores of the first seed with ELMo at the input, the output, and both."""
    rows = [["task", *VARIANTS]]
    for plan, results in measured:
        cells = (percent(results[v].first_score("test")) if v in results else "" for v in VARIANTS)
        rows.append([plan.title, *cells])
    return markdown_table(rows) + "\n\n![weights of the layers](results/task_mixes.png)"


def epochs_table(measured: Sequence[tuple[TaskPlan, Results]]) -> str:
    """Return how soon heads with ELMo reach the best validation score of their baseline."""
    rows = [["task", "baseline: best epoch", "+ ELMo: the same score after", "reached by"]]
    for plan, results in measured:
        baseline = results[BASELINE]
        goals = [max(curve) for curve in baseline.validation_curves()]
        curves = results[AT_INPUT].validation_curves()
        reached = [epochs_to_reach(*pair) for pair in zip(curves, goals, strict=True)]
        epochs = [epoch for epoch in reached if epoch is not None]
        rows.append(
            [
                plan.title,
                f"{statistics.fmean(baseline.best_epochs()):.1f}",
                f"{statistics.fmean(epochs):.1f}" if epochs else "",
                f"{len(epochs)} of {len(reached)}",
            ]
        )
    return markdown_table(rows)


def costs_table(measured: Sequence[tuple[TaskPlan, Results]], records: Path) -> str:
    """Return the time to train a head, and the processor time and memory of the commands."""
    memory = ("baseline: peak memory", "+ ELMo: peak memory")
    rows = [["task", "baseline", "+ ELMo", "all commands", *memory]]
    hours = []
    for plan, results in measured:
        done = [own for heads in all_heads([plan]) if (own := _results(records, heads)) is not None]
        hours.append(sum(own.processor_seconds for own in done) / 3600)
        seconds = (f"{results[v].seconds():.0f} s" for v in COMPARED)
        peaks = (
            max(r.peak_memory_gib for v, r in results.items() if (v == BASELINE) == is_baseline)
            for is_baseline in (True, False)
        )
        memories = (f"{peak:.1f} GiB" for peak in peaks)
        rows.append([plan.title, *seconds, f"{hours[-1]:.2f} h", *memories])
    return markdown_table(rows) + (
        f"\n\nAll commands together took {sum(hours):.1f} hours of processor time. "
        f"Python {platform.python_version()}, torch {version('torch')}, {platform.machine()}."
    )


def shares_table(measured: Sequence[tuple[TaskPlan, Results]], records: Path) -> str:
    """Return the test scores with shares of the training data."""
    shares = (*SHARES, 1.0)
    rows = [["task", "", *(f"{share:.0%}" for share in shares)]]
    for plan, _ in measured:
        for variant, title in ((BASELINE, "baseline"), (AT_INPUT, "+ ELMo at the input")):
            found = [_results(records, Heads(plan, variant, share)) for share in shares]
            cells = ["" if own is None else percent(*own.score("test")) for own in found]
            rows.append([plan.title, title, *cells])
    return markdown_table(rows)


def plot_mixes(measured: Sequence[tuple[TaskPlan, Results]]) -> None:
    """Draw the weights of the layers in the mixes of heads with ELMo at the input and at both."""
    figure, axes = new_figure(1, len(measured), width=2.4, height=2.8)
    for (plan, results), axis in zip(measured, axes, strict=True):
        for variant in (AT_INPUT, AT_BOTH):
            if variant not in results:
                continue
            for place, weights in results[variant].mix_shares().items():
                label = variant if variant == AT_INPUT else f"{variant}: {place}"
                axis.plot(range(len(weights)), weights, "o-", label=label)
        axis.set(title=plan.name, xlabel="layer", ylim=(0, 1), xticks=range(len(weights)))
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("weight in the mix")
    max(axes, key=lambda axis: len(axis.lines)).legend(fontsize="small")
    save_figure(figure, PICTURE)


PARTS: dict[str, Callable[[Sequence[tuple[TaskPlan, Results]]], str]] = {
    "tasks": main_table,
    "task_settings": settings_table,
    "task_places": places_table,
    "task_epochs": epochs_table,
}
