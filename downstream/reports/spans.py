"""The parts of the report of question answering: scores by question word, and errors.

`errors.jsonl` has one line per test question whose answer is not an exact match: the question, the
predicted answer with its character offsets, and the references. `errors.html` shows the first of
them in their passages.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from downstream.features.span_sources import SpanQuestion
from downstream.heads.answerer import AnswererDescription, SpanPrediction, best_predictions
from downstream.reports.error_pages import (
    ERRORS_FILE,
    ERRORS_PAGE,
    MAX_ERRORS_ON_PAGE,
    SHOWN_ERRORS,
    source_line,
)
from downstream.reports.pages import json_lines, literal, markdown_table
from downstream.reports.plots import LENGTHS, Bar, Bars, length_name, plot_bars
from downstream.reports.report import Column, TaskPage
from downstream.reports.span_errors import SpanError, error_counts, errors_page, most_probable
from downstream.settings.spans import SpanSettings
from downstream.tasks.span_scores import SpanScores
from downstream.tasks.spans import SpanTask
from downstream.tasks.splits import SPLITS
from downstream.texts.answers import AnswerScores, score_answer
from downstream.texts.counts import counted
from downstream.training.experiment import Results

QUESTIONS_PLOT = "questions.png"


def span_page(results: Results[SpanScores], settings: SpanSettings) -> TaskPage:
    """Return the parts of the report that depend on the task."""
    task: SpanTask = results.task
    test = results.chosen().outcome.scores["test"]
    errors = list(span_errors(results))
    num_questions, overlapping = len(task.questions("test")), sum(e.overlaps for e in errors)
    return TaskPage(
        title="Question answering on a frozen biLM",
        introduction=_introduction(results, settings),
        comparison="F1 and exact match in percent (mean and standard deviation over seeds), the "
        "share of each layer (token encoder first), and gamma.",
        columns=(
            Column("validation", "f1", "validation F1"),
            Column("test", "f1", "test F1"),
            Column("test", "exact_match", "test exact match"),
        ),
        figures={"f1": "F1", "exact_match": "exact match"},
        selection="Selected by the validation F1; this directory contains its head.",
        details=[
            "## Question words and lengths (test)",
            _word_table(test),
            f"![F1 by question word and by the number of words of the answer]({QUESTIONS_PLOT})",
            "## Errors (test)",
            f"{error_counts(errors, num_questions)} `{ERRORS_FILE}` has all of them, and "
            f"[{ERRORS_PAGE}]({ERRORS_PAGE}) shows up to {MAX_ERRORS_ON_PAGE} in their passages. "
            "Those with the highest probability of the predicted answer:",
            *(_shown_error(error) for error in most_probable(errors)[:SHOWN_ERRORS]),
        ],
        card=_card(results, settings),
        tree={
            **_tree(task),
            "test_errors": {
                "overlapping": overlapping,
                "elsewhere": len(errors) - overlapping,
            },
        },
        pictures={QUESTIONS_PLOT: partial(plot_bars, _panels(test, results))},
        files={
            ERRORS_FILE: json_lines(error.record() for error in errors),
            ERRORS_PAGE: errors_page(
                errors, num_questions, source_line(settings.data.test, f"F1 {test.f1:.2%}")
            ),
        },
        loss="negative log-likelihood per question",
        score="F1",
    )


def span_errors(results: Results[SpanScores]) -> Iterator[SpanError]:
    """Yield every test question whose answer is not an exact match."""
    task: SpanTask = results.task
    questions = task.questions("test")
    for question, (answered, scores) in zip(questions, _scored(results), strict=True):
        if scores.exact_match == 0:
            passage, prediction = answered.words.passage, answered.prediction
            answer = passage.range_of(prediction.span)
            yield SpanError(passage.text, question, answer, prediction.probability, scores.f1)


class _Answered(NamedTuple):
    """A test question in words, and its predicted answer."""

    words: SpanQuestion
    prediction: SpanPrediction


def _scored(results: Results[SpanScores]) -> Iterator[tuple[_Answered, AnswerScores]]:
    """Yield every test question with the scores of its answer."""
    task: SpanTask = results.task
    chosen = results.chosen()
    assert isinstance(chosen.description, AnswererDescription)
    targets = task.targets("test", chosen.description.head)
    best = best_predictions(chosen.test_predictions, targets)
    for words, prediction in zip(targets.questions, best, strict=True):
        answer = words.passage.text_of(prediction.span)
        yield _Answered(words, prediction), score_answer(answer, words.references)


def _panels(test: SpanScores, results: Results[SpanScores]) -> list[Bars]:
    """Return the F1 by question word, and by the number of words of the first reference."""
    words = {name: Bar(own.f1, own.support) for name, own in test.by_class.items()}
    by_length: dict[str, list[float]] = {name: [] for name in LENGTHS}
    for question, scores in _scored(results):
        length = len(question.words.references[0].split())
        by_length[length_name(length)].append(scores.f1)
    lengths = {
        name: Bar(fmean(values), len(values)) for name, values in by_length.items() if values
    }
    return [
        Bars("F1 (%) by question word, with its number of questions", words),
        Bars("F1 (%) by words of the first reference, with its number of questions", lengths),
    ]


def _introduction(results: Results[SpanScores], settings: SpanSettings) -> str:
    task: SpanTask = results.task
    sizes = ", ".join(
        f"{len(task.questions(split)):,} {name} questions about "
        f"{len(task.splits[split].passages):,} passages"
        for split, name in zip(SPLITS, ("training", "validation", "test"), strict=True)
    )
    known = results.known_words
    vectors = f" {known:.1%} of word types have a vector." if known else ""
    alignments = [task.alignment(split) for split in SPLITS]
    num_answers = sum(a.num_answers for a in alignments)
    widened, lost = sum(a.num_widened for a in alignments), sum(a.num_lost for a in alignments)
    skipped = sum(file.num_skipped for file in task.files.values())
    skips = f" {skipped:,} questions without an answer were left out." if skipped else ""
    return (
        f"{sizes}. Units per direction of the biLSTMs: "
        f"{settings.head.encoder_dim} before and {settings.head.span_dim} after the attention; "
        f"{counted(settings.train.num_seeds, 'seed')} per mix.{vectors} Of {num_answers:,} "
        "reference "
        f"answers, {widened:,} start or end inside a word and were widened to the whole word, and "
        f"{lost:,} contain no word.{skips} {task.num_seen():,} test passages also occur in the "
        "training split."
    )


def _tree(task: SpanTask) -> dict[str, Any]:
    alignments = {split: task.alignment(split) for split in SPLITS}
    return {
        "task": "question answering",
        "questions": {split: len(task.questions(split)) for split in SPLITS},
        "passages": {split: len(task.splits[split].passages) for split in SPLITS},
        "widened_answers": {split: a.num_widened for split, a in alignments.items()},
        "answers_without_words": {split: a.num_lost for split, a in alignments.items()},
        "skipped_questions": {name: file.num_skipped for name, file in task.files.items()},
        "test_passages_in_training": task.num_seen(),
    }


def _word_table(scores: SpanScores) -> str:
    rows = [["question word", "F1", "exact match", "questions"]]
    for word, means in scores.by_class.items():
        figures = [f"{100 * x:.2f}" for x in (means.f1, means.exact_match)]
        rows.append([literal(word), *figures, f"{means.support:,}"])
    return markdown_table(rows)


def _shown_error(error: SpanError) -> str:
    record = error.record()
    references = "; ".join(dict.fromkeys(r["text"] for r in record["references"]))
    lines = [
        f"- {literal(record['question'])}",
        f"  predicted: {literal(record['prediction']['text'])} "
        f"(probability {error.probability:.2f})",
        f"  references: {literal(references)}",
    ]
    return "  \n".join(lines)


def _card(results: Results[SpanScores], settings: SpanSettings) -> list[str]:
    chosen, task = results.chosen(), results.task
    best, description = chosen.outcome, chosen.description
    assert isinstance(description, AnswererDescription)
    test, sizes = best.scores["test"], {split: len(task.questions(split)) for split in SPLITS}
    return [
        "# Model card: question answering",
        f"**Model.** {chosen.num_weights:,} weights on {', '.join(description.input_names())}.",
        f"**Training data.** `{Path(settings.data.train).name}`: {sizes['train']:,} questions, and "
        f"{sizes['validation']:,} more for early stopping; seed {best.seed}.",
        f"**Test data.** `{Path(settings.data.test).name}`, {sizes['test']:,} questions: F1 "
        f"{test.f1:.2%}, exact match {test.exact_match:.2%}.",
        "**Use.** `downstream.QuestionAnswerer.from_pretrained(directory).predict([(question, "
        "context)])`, or `bilm tasks predict`. The biLM and the word vectors are found by path and "
        "verified by digest.",
        "**Limits.** Every question gets an answer from its passage, even if the passage does not "
        "contain one. Biases of the training data are reproduced.",
    ]
