"""Running baselines on one task and comparing their scores.

scikit-learn, gensim and torch are imported when a baseline runs, so that `--help` and mistakes in
the flags are fast.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from bilm.distributed.process import peak_memory_bytes
from bilm.errors import ConfigError
from downstream.baselines.baseline import NAMES, Baseline
from downstream.reports.pages import Page, markdown_table, percent
from downstream.settings.progress import Progress
from downstream.settings.sections import BaselineSettings
from downstream.tasks.classification import Task

logger = logging.getLogger(__name__)

FORMAT = "bilm-baselines"


@dataclass(frozen=True)
class Comparison:
    """The baselines of a task."""

    settings: BaselineSettings
    task: Task
    baselines: Sequence[Baseline]


def chosen_names(which: str | None, settings: BaselineSettings) -> tuple[str, ...]:
    """Return the baselines to run, in order; reject a name that is unknown or cannot run.

    `which` is the value of `--which`; without one, all baselines run that can.
    """
    missing = {}
    if settings.head.vectors is None:
        missing["glove"] = "--vectors FILE"
    if settings.model is None:
        missing["untrained"] = "--model DIR, whose shape it copies"
    if which is None:
        return tuple(name for name in NAMES if name not in missing)
    names = [name.strip() for name in which.split(",")]
    for name in names:
        if name not in NAMES:
            raise ConfigError(f"--which has {name!r}; it must be one of {', '.join(NAMES)}")
        if name in missing:
            raise ConfigError(f"--which has {name!r}, which needs {missing[name]}")
    return tuple(name for name in NAMES if name in names)


def run_baselines(
    settings: BaselineSettings, task: Task, names: Sequence[str], progress: bool | None = None
) -> Comparison:
    """Fit and score the named baselines."""
    baselines: list[Baseline] = []
    with Progress("baselines", progress).bar("baselines", total=len(names)) as bar:
        for name in names:
            bar.set_postfix_str(name)
            baseline = _run(name, settings, task, progress)
            baselines.append(baseline)
            accuracy = 100 * baseline.scores["test"].accuracy
            logger.info(
                "%s: test accuracy %.2f %%, %.0f CPU seconds", name, accuracy, baseline.cpu_seconds
            )
            bar.update()
    return Comparison(settings, task, baselines)


def _run(name: str, settings: BaselineSettings, task: Task, progress: bool | None) -> Baseline:
    from downstream.baselines import linear

    if name == "untrained":
        from downstream.baselines.untrained import untrained_bilm

        return untrained_bilm(settings, task, progress)
    data = linear.texts_of(task)
    seed = settings.train.seed % 2**32  # scikit-learn's seeds are 32 bits wide
    run: dict[str, Callable[[], Baseline]] = {
        "majority": lambda: linear.majority(data),
        "tfidf": lambda: linear.tf_idf(data, seed),
        "svm": lambda: linear.ngram_svm(data, seed),
        "glove": lambda: linear.glove_mean(data, str(settings.head.vectors)),
        "svd": lambda: linear.cooccurrence_svd(data, seed),
        "skipgram": lambda: linear.skip_gram_mean(data, seed),
    }
    return run[name]()


def baselines_table(baselines: Sequence[Baseline]) -> str:
    """Return a Markdown table with a row per baseline."""
    rows = [["baseline", "validation", "test", "macro F1", "chosen", "CPU seconds"]]
    for baseline in baselines:
        rows.append(
            [
                baseline.title,
                percent(baseline.scores["validation"].accuracy),
                percent(baseline.scores["test"].accuracy),
                percent(baseline.scores["test"].macro_f1),
                ", ".join(f"{key} {value}" for key, value in baseline.chosen.items()),
                f"{baseline.cpu_seconds:.0f}",
            ]
        )
    return markdown_table(rows)


def baselines_page(comparison: Comparison) -> Page:
    """Return the page of a comparison."""
    settings, task = comparison.settings, comparison.task
    sizes = {name: len(split) for name, split in task.splits.items()}
    counts = ", ".join(f"{count:,} {split}" for split, count in sizes.items())
    return Page(
        figures={
            "settings": settings.model_dump(mode="json"),
            "classes": list(task.classes),
            "texts": sizes,
            "baselines": [asdict(baseline) for baseline in comparison.baselines],
            "peak_memory_gib": peak_memory_bytes() / 2**30,
        },
        paragraphs=[
            "# Baselines",
            f"{len(task.classes)} classes; {counts} texts; seed {settings.train.seed}. Fitted on "
            "the training split; the regularization strength was chosen on the validation split.",
            baselines_table(comparison.baselines),
        ],
    )
