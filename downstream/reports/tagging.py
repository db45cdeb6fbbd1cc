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
from typing import Any

from downstream.heads.tagger import TaggerDescription, TagPrediction
from downstream.reports.error_pages import (
    ERRORS_FILE,
    ERRORS_PAGE,
    MAX_ERRORS_ON_PAGE,
    SHOWN_ERRORS,
    source_line,
)
from downstream.reports.pages import json_lines, literal
from downstream.reports.plots import plot_confused, plot_labels
from downstream.reports.report import Column, TaskPage, class_table, confusion_table
from downstream.reports.tag_analysis import (
    Compared,
    SpanAnalysis,
    WordAnalysis,
    analyze_spans,
    analyze_words,
    span_key,
    span_section,
    word_section,
)
from downstream.reports.tag_errors import PageHeading, TagError, errors_page, num_errors_of
from downstream.settings.tagging import SequenceSettings
from downstream.tasks.splits import SPLITS
from downstream.tasks.tag_scores import TagScores
from downstream.tasks.tagging import TaggingTask
from downstream.texts.counts import counted
from downstream.texts.tag_sequences import Span, compared_spans
from downstream.training.experiment import Results

_Strings = Sequence[str]


@dataclass(frozen=True)
class TaskNames:
    """The words that describe a tagging task in its report."""

    title: str
    unit: str  # of the examples, in the plural
    example: str  # in the singular
    noun: str  # of the trained head
    use: str  # of its class


_SPAN_FIGURES = {"precision": "precision", "recall": "recall", "accuracy": "word accuracy"}

_WORD_ACCURACY = (
    " Word accuracy is the share of all words with the right label, including O; F1, precision and "
    "recall are those of whole spans."
)

TAGGING = TaskNames("Tagging", "sentences", "sentence", "tagger", "downstream.Tagger")


def tagging_page(
    results: Results[TagScores], settings: SequenceSettings, names: TaskNames = TAGGING
) -> TaskPage:
    """Return the parts of the report that depend on the task."""
    task: TaggingTask = results.task
    best = results.chosen().outcome
    main = "F1" if task.is_bio else "accuracy"
    test = best.scores["test"]
    confusions = [(c.truth, c.predicted, c.count) for c in test.confusions]
    wrong = list(errors(results))
    analysis = analyze(results)
    return TaskPage(
        title=f"{names.title} on a frozen biLM",
        introduction=_introduction(results, settings, names),
        comparison=f"The {main} in percent (mean and standard deviation over seeds), the share of "
        "each layer (token encoder first), and gamma.",
        columns=(Column("validation", "main", "validation"), Column("test", "main", "test")),
        figures={"main": main, **(_SPAN_FIGURES if task.is_bio else {})},
        selection=f"Selected by the validation {main}; this directory contains its {names.noun}."
        + (_WORD_ACCURACY if task.is_bio else ""),
        details=[
            *_scores_section(test, analysis),
            "## Confused labels of words (test)",
            confusion_table(confusions, "words"),
            "![confused labels](confusion.png)",
            *_error_section(wrong, len(task.splits["test"]), names.unit),
        ],
        card=_card(results, settings, names),
        tree={**_tree(task, names), "test_analysis": analysis.as_json()},
        pictures={
            "labels.png": partial(plot_labels, test.by_class, "spans" if task.is_bio else "words"),
            "confusion.png": partial(plot_confused, confusions, test.num_confusions),
        },
        files={
            ERRORS_FILE: json_lines(error.record() for error in wrong),
            ERRORS_PAGE: errors_page(
                wrong,
                PageHeading(
                    _errors_title(task),
                    names.unit,
                    len(task.splits["test"]),
                    source_line(settings.data.test, f"{main} {test.main:.2%}"),
                ),
            ),
        },
        loss=f"negative log-likelihood per {names.example}",
        score=main,
    )


def _tree(task: TaggingTask, names: TaskNames) -> dict[str, Any]:
    """Return the fields of results.json about the task."""
    return {
        "task": names.noun,
        "labels": list(task.labels),
        names.unit: {split: len(task.splits[split]) for split in SPLITS},
        "validation_sentences_in_training": task.num_seen("validation"),
        "test_sentences_in_training": task.num_seen("test"),
    }


def _errors_title(task: TaggingTask) -> str:
    """Return the title of the page of errors."""
    if task.has_predicates:
        return "Wrong arguments"
    return "Wrong spans" if task.is_bio else "Wrong tags"


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


def _scores_section(test: TagScores, analysis: SpanAnalysis | WordAnalysis) -> list[str]:
    """Return the scores by label, and the analysis."""
    plot = "![F1 of each label](labels.png)"
    if isinstance(analysis, SpanAnalysis):
        return [class_table(test.by_class, "type (test)", "spans"), plot, *span_section(analysis)]
    return [class_table(test.by_class, "label (test)", "words"), *word_section(analysis), plot]


def _error_section(wrong: Sequence[TagError], num_examples: int, unit: str) -> list[str]:
    """Return the number of errors and the first ones."""
    return [
        "## Errors (test)",
        f"{num_errors_of(len(wrong), num_examples, unit)}. [{ERRORS_PAGE}]({ERRORS_PAGE}) shows up "
        f"to {MAX_ERRORS_ON_PAGE} of them with their spans marked, and `{ERRORS_FILE}` has all of "
        "them. The first ones:",
        *map(_shown_error, wrong[:SHOWN_ERRORS]),
    ]


def analyze(results: Results[TagScores]) -> SpanAnalysis | WordAnalysis:
    """Return what kinds of errors the best head makes on the test split."""
    task: TaggingTask = results.task
    train = [task.words("train", i) for i in range(len(task.splits["train"]))]
    if not task.is_bio:
        tagged = (
            row for words, *tags in _tagged(results) for row in zip(words, *tags, strict=True)
        )
        known_words = {word for words in train for word in words}
        scores = results.chosen().outcome.scores["test"].by_class.values()
        return analyze_words(tagged, known_words, scores)
    known = {
        span_key(words, span)
        for words, example in zip(train, task.splits["train"].examples, strict=True)
        for span in compared_spans(example.tags, task.rules)
    }
    compared = (
        Compared(words, compared_spans(truth, task.rules), compared_spans(found, task.rules))
        for words, truth, found in _tagged(results)
    )
    return analyze_spans(compared, known)


def _tagged(
    results: Results[TagScores],
) -> Iterator[tuple[Sequence[str], Sequence[str], Sequence[str]]]:
    """Yield the words, the true tags and the predicted tags of each test example."""
    task: TaggingTask = results.task
    predictions: Sequence[TagPrediction] = results.chosen().test_predictions
    examples = task.splits["test"].examples
    for i, (example, prediction) in enumerate(zip(examples, predictions, strict=True)):
        yield task.words("test", i), example.tags, prediction.tags


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
    """Return a paragraph: the sentence, its predicate, the missed spans and the wrong ones."""
    parts = [f"- {literal(' '.join(error.words))}"]
    if error.predicate is not None:
        predicate = literal(error.words[error.predicate])
        parts.append(f"  predicate: {predicate} (word {error.predicate + 1})")
    for heading, spans in (("missed", error.missed), ("wrong", error.wrong)):
        shown = [f"{literal(error.text_of(span))} [{literal(span.type)}]" for span in spans]
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
        f"**Labels.** {', '.join(map(literal, task.labels))}.",
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
