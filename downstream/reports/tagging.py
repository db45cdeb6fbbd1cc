"""The parts of the report of tagging tasks: scores by type, confused labels, and errors.

`errors.jsonl` has one line per test sentence with an error: its words, the spans (or the words with
a wrong tag) that were missed and those that are wrong, and its file and line. `errors.html` shows
the first of them with their spans marked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from downstream.heads.tagger import TaggerDescription, TagPrediction
from downstream.reports.error_pages import ERRORS_FILE, ERRORS_PAGE, SHOWN_ERRORS
from downstream.reports.pages import json_lines
from downstream.reports.plots import plot_confused, plot_labels
from downstream.reports.report import Column, TaskPage, class_table, confusion_table
from downstream.reports.tag_errors import TagError, errors_page
from downstream.settings.tagging import SequenceSettings
from downstream.tasks.splits import SPLITS
from downstream.tasks.tag_scores import TagScores
from downstream.tasks.tagging import TaggingTask
from downstream.texts.counts import counted
from downstream.texts.tag_sequences import Span, compared_spans
from downstream.training.experiment import Results


@dataclass(frozen=True)
class TaskNames:
    """The words that describe a tagging task in its report."""

    title: str
    unit: str  # of the examples, in the plural
    noun: str  # of the trained head
    use: str  # of its class


TAGGING = TaskNames("Tagging", "sentences", "tagger", "downstream.Tagger")


def tagging_page(
    results: Results[TagScores], settings: SequenceSettings, names: TaskNames = TAGGING
) -> TaskPage:
    """Return the parts of the report that depend on the task."""
    task: TaggingTask = results.task
    best = results.chosen().outcome
    main = "F1" if task.is_bio else "accuracy"
    figures = {"main": main, "precision": "precision", "recall": "recall", "accuracy": "accuracy"}
    if not task.is_bio:
        figures = {"main": main}
    test = best.scores["test"]
    confusions = [(c.truth, c.predicted, c.count) for c in test.confusions]
    wrong = list(errors(results))
    return TaskPage(
        title=f"{names.title} on a frozen biLM",
        introduction=_introduction(results, settings, names),
        comparison=f"The {main} in percent (mean and standard deviation over seeds), the share of "
        "each layer (token encoder first), and gamma.",
        columns=(Column("validation", "main", "validation"), Column("test", "main", "test")),
        figures=figures,
        selection=f"Selected by the validation {main}; this directory contains its {names.noun}.",
        details=_details(test, task.is_bio, confusions, wrong),
        card=_card(results, settings, names),
        tree={
            "task": names.noun,
            "labels": list(task.labels),
            names.unit: {split: len(task.splits[split]) for split in SPLITS},
            "validation_sentences_in_training": task.num_seen("validation"),
            "test_sentences_in_training": task.num_seen("test"),
        },
        pictures={
            "labels.png": partial(plot_labels, test.by_class, "spans" if task.is_bio else "words"),
            "confusion.png": partial(plot_confused, confusions),
        },
        files={
            ERRORS_FILE: json_lines(error.record() for error in wrong),
            ERRORS_PAGE: errors_page(wrong, names.unit),
        },
        loss="negative log-likelihood per sentence",
        score=main,
    )


def _introduction(results: Results[TagScores], settings: SequenceSettings, names: TaskNames) -> str:
    task: TaggingTask = results.task
    sizes = ", ".join(f"{len(task.splits[split]):,} {split}" for split in SPLITS)
    known = results.known_words
    vectors = f" {known:.1%} of word types have a vector." if known else ""
    head = settings.head
    output = "a linear-chain CRF" if head.crf else "a softmax per word"
    return (
        f"{len(task.labels)} labels; {sizes} {names.unit}. "
        f"{counted(head.encoder_layers, 'biLSTM layer')} of {head.encoder_dim} units per direction "
        f"and {output}, "
        f"{counted(settings.train.num_seeds, 'seed')} per mix.{vectors} {task.num_seen('test'):,} "
        "test sentences and "
        f"{task.num_seen('validation'):,} validation sentences also occur in the training split."
    )


def _details(
    test: TagScores,
    is_bio: bool,
    confusions: Sequence[tuple[str, str, int]],
    wrong: Sequence[TagError],
) -> list[str]:
    """Return the scores by label, the confused labels, and the first errors."""
    kind, unit = ("type (test)", "spans") if is_bio else ("label (test)", "words")
    return [
        class_table(test.by_class, kind, unit),
        "![F1 of each label](labels.png)",
        "## Confused labels (test)",
        confusion_table(confusions, "words"),
        "![confused labels](confusion.png)",
        "## Errors (test)",
        f"The first errors; [{ERRORS_PAGE}]({ERRORS_PAGE}) shows more of them with their spans "
        f"marked, and `{ERRORS_FILE}` has all of them.",
        *map(_shown_error, wrong[:SHOWN_ERRORS]),
    ]


def errors(results: Results[TagScores]) -> Iterator[TagError]:
    """Yield every test example with an error."""
    task: TaggingTask = results.task
    predictions: Sequence[TagPrediction] = results.chosen().test_predictions
    split = task.splits["test"]
    file = task.files[split.file]
    for i, (example, prediction) in enumerate(zip(split.examples, predictions, strict=True)):
        if task.is_bio:
            truth = compared_spans(example.tags, task.rules)
            predicted = compared_spans(prediction.tags, task.rules)
        else:
            tags = enumerate(zip(example.tags, prediction.tags, strict=True))
            wrong = [(k, *pair) for k, pair in tags if pair[0] != pair[1]]
            truth = {Span(tag, k, k + 1) for k, tag, _ in wrong}
            predicted = {Span(tag, k, k + 1) for k, _, tag in wrong}
        if truth != predicted:
            words = tuple(task.words("test", i))
            yield TagError(file.place(example, 0), words, truth, predicted, example.predicate)


def _shown_error(error: TagError) -> str:
    """Return a paragraph: the sentence, the spans that were missed and the wrong ones."""
    parts = [f"- {' '.join(error.words)}"]
    for heading, spans in (("missed", error.missed), ("wrong", error.wrong)):
        shown = [f"{error.text_of(span)} [{span.type}]" for span in spans]
        parts.append(f"  {heading}: {'; '.join(shown) or '-'}")
    return "  \n".join(parts)


def _card(results: Results[TagScores], settings: SequenceSettings, names: TaskNames) -> list[str]:
    chosen, task = results.chosen(), results.task
    best, description = chosen.outcome, chosen.description
    assert isinstance(description, TaggerDescription)
    test, main = best.scores["test"], "F1" if task.is_bio else "accuracy"
    return [
        f"# Model card: {names.noun}",
        f"**Model.** {chosen.num_weights:,} weights on {', '.join(description.input_names())}.",
        f"**Labels.** {', '.join(task.labels)}.",
        f"**Training data.** `{Path(settings.data.train).name}`: {len(task.splits['train']):,} "
        f"{names.unit}, and {len(task.splits['validation']):,} more for early stopping; seed "
        f"{best.seed}.",
        f"**Test data.** `{Path(settings.data.test).name}`, {len(task.splits['test']):,} "
        f"{names.unit}: {main} {test.main:.2%}.",
        f"**Use.** `{names.use}.from_pretrained(directory).predict(texts)`, or "
        "`bilm tasks predict`. The biLM and the word vectors are found by path and verified by "
        "digest.",
        "**Limits.** Raw text is tokenized by the tokenizer of the biLM. Where it differs from the "
        "tokenization of the training data, predictions are less accurate. Biases of the training "
        "data are reproduced.",
    ]
