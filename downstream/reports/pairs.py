"""The parts of the report of `downstream.pair`: scores by class, confused labels, and errors.

`errors.jsonl` has one line per test pair with a wrong class: both texts, the true and the predicted
label, the probability of the predicted one, and the file and line of the pair. `errors.html` shows
the first of them.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from downstream.heads.pair_model import PairDescription
from downstream.reports.pages import literal
from downstream.reports.plots import plot_confusion
from downstream.reports.report import (
    CLASSIFICATION_COLUMNS,
    TaskPage,
    class_table,
    confusion_table,
)
from downstream.reports.text_errors import class_errors, error_files, error_section
from downstream.settings.pairs import PairSettings
from downstream.tasks.pairs import PairTask
from downstream.tasks.scores import Scores
from downstream.tasks.splits import SPLITS
from downstream.texts.counts import counted
from downstream.training.experiment import Results


def pair_page(results: Results[Scores], settings: PairSettings) -> TaskPage:
    """Return the parts of the report that depend on the task."""
    task: PairTask = results.task
    best = results.chosen().outcome
    test, overlap = best.scores["test"], task.overlap()
    wrong = list(class_errors(results, task.labels, partial(_texts_of, task)))
    return TaskPage(
        title="Pairs of texts on a frozen biLM",
        introduction=_introduction(results, settings),
        comparison="Accuracy and macro F1 in percent (mean and standard deviation over seeds), the "
        "share of each layer (token encoder first), and gamma.",
        columns=CLASSIFICATION_COLUMNS,
        figures={"accuracy": "accuracy", "macro_f1": "macro F1"},
        selection="Selected by the validation accuracy; this directory contains its classifier.",
        details=[
            "![confusion matrices](confusion.png)",
            class_table(test.by_class, "class (test)", "pairs"),
            "## Confused labels (test)",
            confusion_table(test.confusions(task.labels), "pairs"),
            *error_section(wrong, "pairs"),
        ],
        card=_card(results, settings),
        tree={
            "task": "pair classifier",
            "classes": list(task.classes),
            "pairs": {split: len(task.splits[split]) for split in SPLITS},
            "test_pairs_in_training": overlap.num_pairs,
            "test_pairs_with_first_text_in_training": overlap.num_first_texts,
        },
        pictures={"confusion.png": partial(plot_confusion, best.scores, task.labels)},
        files=error_files(wrong, "Wrong classes of pairs", "pairs"),
        training_scored=True,
    )


def _texts_of(task: PairTask, place: int) -> dict[str, str]:
    """Return both texts of a pair of the test file."""
    first, second = task.files[task.splits["test"].file].both(place)
    return {"first": first, "second": second}


def _introduction(results: Results[Scores], settings: PairSettings) -> str:
    task: PairTask = results.task
    sizes = ", ".join(f"{len(task.splits[split]):,} {split}" for split in SPLITS)
    known, overlap = results.known_words, task.overlap()
    vectors = f" {known:.1%} of word types have a vector." if known else ""
    return (
        f"{len(task.classes)} classes; {sizes} pairs. Two biLSTMs of {settings.head.encoder_dim} "
        "units per direction with attention between them, "
        f"{counted(settings.train.num_seeds, 'seed')} per "
        f"mix.{vectors} {overlap.num_pairs:,} test pairs also occur in the training split; the "
        f"first text of {overlap.num_first_texts:,} test pairs does."
    )


def _card(results: Results[Scores], settings: PairSettings) -> list[str]:
    chosen, task = results.chosen(), results.task
    best, description = chosen.outcome, chosen.description
    assert isinstance(description, PairDescription)
    test = best.scores["test"]
    return [
        "# Model card: pair classifier",
        f"**Model.** A network with attention between two texts and {chosen.num_weights:,} "
        f"weights on {', '.join(description.input_names())}.",
        f"**Classes.** {', '.join(map(literal, task.classes))}.",
        f"**Training data.** `{Path(settings.data.train).name}`: {len(task.splits['train']):,} "
        f"pairs, and {len(task.splits['validation']):,} more for early stopping; seed {best.seed}.",
        f"**Test data.** `{Path(settings.data.test).name}`, {len(task.splits['test']):,} pairs: "
        f"accuracy {test.accuracy:.2%}, macro F1 {test.macro_f1:.2%}.",
        "**Use.** `downstream.PairClassifier.from_pretrained(directory).predict(pairs)`, or "
        "`bilm tasks predict`. The biLM and the word vectors are found by path and verified by "
        "digest.",
        f"**Limits.** Every pair gets one of the {len(task.classes)} classes. Probabilities are "
        f"not calibrated. Texts are truncated to {description.max_words} words. A classifier may "
        "rely on one of the two texts alone. Biases of the training pairs are reproduced.",
    ]
