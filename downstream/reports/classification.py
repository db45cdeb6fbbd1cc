"""The report of `downstream.classify`: what it contains besides the parts of all reports."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from downstream.heads.saved_head import Description
from downstream.reports.plots import plot_confusion
from downstream.reports.report import CLASSIFICATION_COLUMNS, TaskPage, class_table
from downstream.settings.sections import Settings
from downstream.tasks.classification import Task
from downstream.tasks.scores import Scores
from downstream.tasks.splits import SPLITS
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
    sizes = ", ".join(f"{len(task.splits[split]):,} {split}" for split in SPLITS)
    known = results.known_words
    vectors = f"; {known:.1%} of word types have a vector" if known else ""
    return TaskPage(
        title="Text classification on a frozen biLM",
        introduction=f"{len(task.classes)} classes; {sizes} texts. Head `{settings.head.kind}`, "
        f"{settings.train.num_seeds} seed(s) per mix{vectors}.",
        comparison="Accuracy and macro F1 in percent (mean and standard deviation over seeds), the "
        "share of each layer (token encoder first), and gamma. For `learned`, the share of a layer "
        "is its share of the squared norm of the first weight matrix.",
        columns=CLASSIFICATION_COLUMNS,
        figures=_FIGURES,
        selection="Selected by validation accuracy; this directory contains its classifier.",
        details=[
            "![confusion matrices](confusion.png)",
            class_table(best.scores["test"].by_class, "class (test)", "texts"),
        ],
        card=_card(results, settings),
        tree={
            "classes": list(task.classes),
            "texts": {split: len(task.splits[split]) for split in SPLITS},
        },
        pictures={"confusion.png": partial(plot_confusion, best.scores, task.classes)},
    )


def _card(results: Results[Scores], settings: Settings) -> list[str]:
    chosen, task = results.chosen(), results.task
    best, description = chosen.outcome, chosen.description
    assert isinstance(description, Description)
    test = best.scores["test"]
    vectors = (
        f" and word vectors of {description.vector_dim} dimensions" if description.vectors else ""
    )
    files = "the biLM and the word vectors" if description.vectors else "the biLM"
    return [
        "# Model card: text classifier",
        f"**Model.** A `{settings.head.kind}` head with {chosen.num_weights:,} weights on a "
        f"frozen biLM with {description.num_layers} layers of {description.dim} "
        f"dimensions{vectors}; the layers are mixed by `{best.mix}`.",
        f"**Classes.** {', '.join(task.classes)}.",
        f"**Training data.** `{Path(settings.data.train).name}`: {len(task.splits['train']):,} "
        f"texts, and {len(task.splits['validation']):,} more for early stopping; seed "
        f"{best.seed}.",
        f"**Test data.** `{Path(settings.data.test).name}`, {len(task.splits['test']):,} texts: "
        f"accuracy {test.accuracy:.2%}, macro F1 {test.macro_f1:.2%}.",
        "**Use.** `downstream.TextClassifier.from_pretrained(directory).predict(texts)`, or "
        f"`python -m downstream.predict`. The classifier needs {files} that it was trained with. "
        "They are found by path and verified by digest; the digest of the biLM starts with "
        f"`{description.bilm.digest[:12]}`.",
        f"**Limits.** Every text gets one of the {len(task.classes)} classes, including a text "
        "that belongs to none of them. Probabilities are not calibrated. Texts are truncated to "
        f"{description.max_words} words. Biases of the training texts are reproduced.",
    ]
