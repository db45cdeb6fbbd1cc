"""The parts of the report of tagging tasks: scores by type, confused labels, and errors.

`errors.jsonl` has one line per test sentence with an error: its words, the true and the predicted
spans (or the words with a wrong tag), and its file and line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from downstream.heads.tagger import TaggerDescription, TagPrediction
from downstream.reports.pages import markdown_table
from downstream.reports.report import Column, TaskPage, class_table
from downstream.settings.tagging import SequenceSettings
from downstream.tasks.splits import SPLITS
from downstream.tasks.tag_scores import TagScores
from downstream.tasks.tagging import TaggingTask
from downstream.texts.tag_sequences import Span, spans_without
from downstream.training.experiment import Results

ERRORS_FILE = "errors.jsonl"

_SHOWN_ERRORS = 15
_SHOWN_CONFUSIONS = 15


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
    kind = "type (test)" if task.is_bio else "label (test)"
    return TaskPage(
        title=f"{names.title} on a frozen biLM",
        introduction=_introduction(results, settings, names),
        comparison=f"The {main} in percent (mean and standard deviation over seeds), the share of "
        "each layer (token encoder first), and gamma.",
        columns=(Column("validation", "main", "validation"), Column("test", "main", "test")),
        figures=figures,
        selection=f"Selected by the validation {main}; this directory contains its {names.noun}.",
        details=[
            class_table(test.by_class, kind, "spans" if task.is_bio else "words"),
            "## Confused labels (test)",
            _confusion_table(test),
            "## Errors (test)",
            f"The first errors; `{ERRORS_FILE}` has all of them.",
            *islice(_shown_errors(results), _SHOWN_ERRORS),
        ],
        card=_card(results, settings, names),
        tree={
            "task": names.noun,
            "labels": list(task.labels),
            names.unit: {split: len(task.splits[split]) for split in SPLITS},
            "test_sentences_in_training": task.num_seen(),
        },
        files={
            ERRORS_FILE: "".join(
                json.dumps(error, ensure_ascii=False) + "\n" for error in errors(results)
            )
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
        f"{len(task.labels)} labels; {sizes} {names.unit}. {head.encoder_layers} biLSTM layer(s) "
        f"of {head.encoder_dim} units per direction and {output}, {settings.train.num_seeds} "
        f"seed(s) per mix.{vectors} {task.num_seen():,} test sentences also occur in the training "
        "split."
    )


def errors(results: Results[TagScores]) -> Iterator[dict[str, Any]]:
    """Yield a record of every test example with an error."""
    task: TaggingTask = results.task
    predictions: Sequence[TagPrediction] = results.chosen().test_predictions
    split = task.splits["test"]
    file = task.files[split.file]
    for i, (example, prediction) in enumerate(zip(split.examples, predictions, strict=True)):
        truth, predicted = example.tags, prediction.tags
        if task.is_bio:
            missed = spans_without(truth, task.excluded) - spans_without(predicted, task.excluded)
            extra = spans_without(predicted, task.excluded) - spans_without(truth, task.excluded)
        else:
            wrong = [k for k in range(len(truth)) if truth[k] != predicted[k]]
            missed = {Span(truth[k], k, k + 1) for k in wrong}
            extra = {Span(predicted[k], k, k + 1) for k in wrong}
        if not missed and not extra:
            continue
        record: dict[str, Any] = {
            "place": file.place(example, 0),
            "words": list(task.words("test", i)),
            "missed": sorted(map(list, missed), key=lambda span: span[1]),
            "wrong": sorted(map(list, extra), key=lambda span: span[1]),
        }
        yield record | ({} if example.predicate is None else {"predicate": example.predicate})


def _shown_errors(results: Results[TagScores]) -> Iterator[str]:
    """Yield a paragraph per error: the sentence, the spans that were missed and the wrong ones."""
    for error in errors(results):
        words = error["words"]
        parts = [f"- {' '.join(words)}"]
        for heading in ("missed", "wrong"):
            spans = [f"{' '.join(words[a:b])} [{kind}]" for kind, a, b in error[heading]]
            parts.append(f"  {heading}: {'; '.join(spans) or '-'}")
        yield "  \n".join(parts)


def _confusion_table(scores: TagScores) -> str:
    rows = [["true label", "predicted label", "words"]]
    shown = scores.confusions[:_SHOWN_CONFUSIONS]
    rows += [[c.truth, c.predicted, f"{c.count:,}"] for c in shown]
    return markdown_table(rows) if shown else "No word has a wrong label."


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
