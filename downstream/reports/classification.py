"""The report of `downstream.classify`: what it contains besides the parts of all reports."""

from __future__ import annotations

from functools import partial

from downstream.reports.pages import literal
from downstream.reports.plots import plot_confusion
from downstream.reports.report import (
    CLASSIFICATION_COLUMNS,
    TaskPage,
    class_table,
    confusion_table,
)
from downstream.reports.text_cards import (
    MIX_NOTE,
    CardParts,
    head_card,
    introduction,
    num_texts,
)
from downstream.reports.text_errors import class_errors, error_files, error_section
from downstream.settings.sections import Settings
from downstream.tasks.classification import Task
from downstream.tasks.scores import Scores
from downstream.training.experiment import Results

_FIGURES = {
    "accuracy": "accuracy",
    "macro_f1": "macro F1",
    "macro_precision": "precision",
    "macro_recall": "recall",
}


def classification_page(results: Results[Scores], settings: Settings) -> TaskPage:
    """Return the parts of the report that depend on the task."""
    task: Task = results.task
    best = results.chosen().outcome
    test = best.scores["test"]
    texts = task.files[task.splits["test"].file].texts
    wrong = list(class_errors(results, task.classes, lambda i: {"text": texts[i]}))
    return TaskPage(
        title="Text classification on a frozen biLM",
        introduction=introduction(results, settings, f"{len(task.classes)} classes"),
        comparison="Accuracy and macro F1 in percent (mean and standard deviation over seeds), "
        + MIX_NOTE,
        columns=CLASSIFICATION_COLUMNS,
        figures=_FIGURES,
        selection="Selected by validation accuracy; this directory contains its classifier.",
        details=[
            "![confusion matrices](confusion.png)",
            class_table(test.by_class, "class (test)", "texts"),
            "## Confused labels (test)",
            confusion_table(test.confusions(task.classes), "texts"),
            *error_section(wrong, "texts"),
        ],
        card=_card(results, settings),
        tree={"classes": list(task.classes), **num_texts(results)},
        pictures={"confusion.png": partial(plot_confusion, best.scores, task.classes)},
        files=error_files(wrong, "Wrong classes of texts", "texts"),
        training_scored=True,
    )


def _card(results: Results[Scores], settings: Settings) -> list[str]:
    test, classes = results.chosen().outcome.scores["test"], results.task.classes
    return head_card(
        results,
        settings,
        CardParts(
            title="text classifier",
            outputs=f"**Classes.** {', '.join(map(literal, classes))}.",
            test=f"accuracy {test.accuracy:.2%}, macro F1 {test.macro_f1:.2%}",
            predictor="TextClassifier",
            limits=f"Every text gets one of the {len(classes)} classes, including a text that "
            "belongs to none of them. Probabilities are not calibrated.",
        ),
    )
