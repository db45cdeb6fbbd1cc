"""The reports of `downstream.classify --target multilabel` and `--target regression`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from downstream.heads.text_targets import LabelSets, Numbers
from downstream.reports.classification import classification_page
from downstream.reports.error_pages import ERRORS_FILE, MAX_ERRORS_ON_PAGE
from downstream.reports.pages import json_lines, literal, plain_number, plain_numbers
from downstream.reports.plots import plot_labels, plot_numbers
from downstream.reports.report import Column, TaskPage, class_table
from downstream.reports.text_cards import (
    MIX_NOTE,
    CardParts,
    head_card,
    introduction,
    num_texts,
)
from downstream.reports.text_errors import (
    LabelSetError,
    NumberError,
    error_files,
    error_section,
    residual_section,
)
from downstream.settings.sections import Settings
from downstream.tasks.target_scores import LabelSetScores, NumberScores
from downstream.tasks.targets import LabelSetTask, NumberTask
from downstream.training.experiment import Results

_LABEL_FIGURES = {
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
    "micro_precision": "micro precision",
    "micro_recall": "micro recall",
    "exact": "exact",
}
_LABEL_COLUMNS = (
    Column("validation", "micro_f1", "validation"),
    Column("test", "micro_f1", "test"),
    Column("test", "macro_f1", "macro F1"),
)
_NUMBER_FIGURES = {
    "r2": "R²",
    "pearson": "Pearson",
    "spearman": "Spearman",
    "rmse": "RMSE",
    "mae": "MAE",
}
_NUMBER_COLUMNS = (
    Column("validation", "r2", "validation R²"),
    Column("test", "r2", "test R²"),
    Column("test", "pearson", "Pearson"),
    Column("test", "spearman", "Spearman"),
    Column("test", "rmse", "RMSE", is_share=False),
)


def text_page(results: Results[Any], settings: Settings) -> TaskPage:
    """Return the parts of the report that depend on the target."""
    if settings.target.kind == "multilabel":
        return label_set_page(results, settings)
    if settings.target.kind == "regression":
        return number_page(results, settings)
    return classification_page(results, settings)


def result_line(results: Results[Any], page: TaskPage) -> str:
    """Return the test scores of the best head, for the summary of the command."""
    test = results.chosen().outcome.scores["test"]
    figures = [column for column in page.columns if column.split == "test"]
    cells = []
    for column in figures:
        value = getattr(test, column.figure)
        shown = f"{value:.2%}" if column.is_share else plain_number(value)
        cells.append(f"{page.figures[column.figure]} {shown}")
    return f"test {', '.join(cells)}"


def label_set_page(results: Results[LabelSetScores], settings: Settings) -> TaskPage:
    """Return the page of a head with any number of labels per text."""
    labels, best = results.task.labels, results.chosen()
    wrong = list(label_set_errors(results))
    threshold = float(best.model.get_buffer("threshold"))
    chosen = (
        " (chosen on the validation texts)" if settings.target.threshold == "validation" else ""
    )
    test = best.outcome.scores["test"]
    mean = np.concatenate([split.labels for split in results.task.splits.values()]).sum(1).mean()
    return TaskPage(
        title="Labels of texts on a frozen biLM",
        introduction=introduction(
            results, settings, f"{len(labels)} labels, {mean:.2f} per text on average"
        ),
        comparison="Micro F1 and macro F1 in percent (mean and standard deviation over seeds), "
        + MIX_NOTE,
        columns=_LABEL_COLUMNS,
        figures=_LABEL_FIGURES,
        selection="Selected by validation micro F1; this directory contains the head. A label is "
        f"predicted if its probability is at least {threshold:.4f}{chosen}. `exact` is the share "
        "of texts whose labels are all predicted correctly.",
        details=[
            "![F1 of each label](labels.png)",
            class_table(test.by_label, "label (test)", "texts"),
            *error_section(wrong, "texts"),
        ],
        card=head_card(
            results,
            settings,
            CardParts(
                title="text labeler",
                outputs=f"**Labels.** {', '.join(map(literal, labels))}. A text may have any "
                "number of them.",
                test=f"micro F1 {test.micro_f1:.2%}, macro F1 {test.macro_f1:.2%}",
                predictor="TextLabeler",
                limits=f"A label is predicted from a probability of {threshold:.4f} on. "
                "Probabilities are not calibrated.",
            ),
        ),
        tree={"labels": list(labels), "threshold": threshold, **num_texts(results)},
        pictures={"labels.png": partial(plot_labels, test.by_label, "texts")},
        files=error_files(wrong, "Wrong labels of texts", "texts"),
        loss="binary cross-entropy",
        score="micro F1",
    )


def label_set_errors(results: Results[LabelSetScores]) -> Iterator[LabelSetError]:
    """Yield every test text with missed or wrong labels."""
    task: LabelSetTask = results.task
    predictions: LabelSets = results.chosen().test_predictions
    split = task.splits["test"]
    file = task.files[split.file]
    for place, row, prediction in zip(split.places, split.labels, predictions, strict=True):
        truth, chosen = row > 0, prediction["chosen"]
        if (truth == chosen).all():
            continue
        of_label = dict(zip(task.labels, prediction["probability"].tolist(), strict=True))
        names = np.array(task.labels, dtype=object)
        yield LabelSetError(
            file.place(place),
            {"text": file.texts[place]},
            {label: of_label[label] for label in names[truth & ~chosen]},
            {label: of_label[label] for label in names[chosen & ~truth]},
            names[truth & chosen].tolist(),
        )


def number_page(results: Results[NumberScores], settings: Settings) -> TaskPage:
    """Return the page of a regression."""
    best, numbers = results.chosen(), results.task.splits["train"].labels
    test, truth = best.outcome.scores["test"], results.task.splits["test"].labels
    largest = largest_errors(results)
    span = " to ".join(plain_numbers([float(numbers.min()), float(numbers.max())]))
    title = f"test: r = {test.pearson:.3f}, RMSE {plain_number(test.rmse)}"
    return TaskPage(
        title="Regression of texts on a frozen biLM",
        introduction=introduction(results, settings, f"Numbers from {span} in training"),
        comparison="R², Pearson's r and Spearman's rank correlation times 100, and the root mean "
        "squared error in the unit of the numbers (mean and standard deviation over seeds), "
        + MIX_NOTE,
        columns=_NUMBER_COLUMNS,
        figures=_NUMBER_FIGURES,
        selection="Selected by validation R²; this directory contains the head.",
        details=["![predicted and true numbers](numbers.png)", *residual_section(largest)],
        card=head_card(
            results,
            settings,
            CardParts(
                title="text regressor",
                outputs=f"**Output.** A number; those of the training texts are {span}.",
                test=f"R² {test.r2:.2%}, Pearson {test.pearson:.2%}, Spearman "
                f"{test.spearman:.2%}, RMSE {plain_number(test.rmse)}",
                predictor="TextRegressor",
                limits="Numbers outside the range of the training texts may be predicted.",
            ),
        ),
        tree={**num_texts(results)},
        pictures={"numbers.png": partial(plot_numbers, truth, best.test_predictions, title)},
        files={ERRORS_FILE: json_lines(error.record() for error in largest)},
        loss="squared error of standardized numbers",
        score="R²",
        plain_figures=("rmse", "mae"),
    )


def largest_errors(results: Results[NumberScores]) -> list[NumberError]:
    """Return the test texts with the largest absolute errors, in this order."""
    task: NumberTask = results.task
    predicted: Numbers = results.chosen().test_predictions
    split = task.splits["test"]
    file = task.files[split.file]
    order = np.argsort(-np.abs(predicted.astype(np.float64) - split.labels), kind="stable")
    return [
        NumberError(
            file.place(split.places[i]),
            {"text": file.texts[split.places[i]]},
            file.targets[split.places[i]],
            float(predicted[i]),
        )
        for i in order[:MAX_ERRORS_ON_PAGE]
    ]
