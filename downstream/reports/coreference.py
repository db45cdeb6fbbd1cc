"""The parts of the report of coreference: scores by measure, length and genre, and the card."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from downstream.heads.coreference import CorefDescription, CorefPrediction
from downstream.reports.cluster_page import PAGE_FILE, cluster_page
from downstream.reports.coref_errors import Resolved, error_paragraphs, errors
from downstream.reports.error_pages import ERRORS_FILE, source_line
from downstream.reports.pages import json_lines, literal, markdown_table
from downstream.reports.plots import LENGTHS, Bar, Bars, length_name, plot_bars
from downstream.reports.report import Column, TaskPage
from downstream.settings.coreference import CorefSettings
from downstream.tasks.coreference import CorefScores, CorefTask
from downstream.tasks.splits import SPLITS
from downstream.texts.cluster_scores import ClusterScores, Prf, score_clusters
from downstream.texts.clusters import Mention, mentions_of
from downstream.texts.counts import counted
from downstream.training.experiment import Results

SCORES_PLOT = "scores.png"

_FIGURES = {
    "main": "CoNLL",
    "muc": "MUC",
    "b_cubed": "B-cubed",
    "ceaf_e": "CEAF-e",
    "mentions": "mentions",
    "chains_conll": "CoNLL without singletons",
}


def resolved(results: Results[CorefScores], settings: CorefSettings) -> list[Resolved]:
    """Return the test documents with the clusters that the best head predicts."""
    task: CorefTask = results.task
    predictions: Sequence[CorefPrediction] = results.chosen().test_predictions
    targets = task.targets("test", settings.data)
    joined = targets.join([prediction.clusters for prediction in predictions])
    return [
        Resolved(document, truth, predicted)
        for document, truth, predicted in zip(
            task.documents("test"), targets.documents, joined, strict=True
        )
    ]


def coref_page(results: Results[CorefScores], settings: CorefSettings) -> TaskPage:
    """Return the parts of the report that depend on the task."""
    task: CorefTask = results.task
    test = results.chosen().outcome.scores["test"]
    documents = resolved(results, settings)
    by_genre = genre_scores(documents)
    return TaskPage(
        title="Coreference on a frozen biLM",
        introduction=_introduction(results, settings),
        comparison="The CoNLL score in percent, which is the mean F1 of MUC, B-cubed and CEAF-e "
        "(mean and standard deviation over seeds), the share of each layer (token encoder first), "
        "and gamma.",
        columns=(
            Column("validation", "main", "validation"),
            Column("test", "main", "test"),
            Column("test", "mentions", "mentions"),
            Column("test", "chains_conll", "without singletons"),
        ),
        figures=_FIGURES,
        selection="Selected by the validation score; this directory contains its coreference "
        "resolver. All columns are F1 in percent.",
        details=[
            "## Scores (test)",
            _score_table({"": test.all, ", without singletons": test.chains}),
            f"![F1 by measure, and recall of mentions by length]({SCORES_PLOT})",
            *genre_section(by_genre),
            "## Errors (test)",
            *error_paragraphs(documents),
        ],
        card=_card(results, settings),
        tree={
            **_tree(task, settings),
            "by_genre": {
                name: {"conll": part.conll, "documents": part.num_documents}
                for name, part in by_genre.items()
            },
        },
        pictures={SCORES_PLOT: partial(plot_bars, _panels(test, documents))},
        files={
            ERRORS_FILE: json_lines(errors(documents, task.files["test"])),
            PAGE_FILE: cluster_page(
                documents, source_line(settings.data.test, f"CoNLL score {test.main:.2%}")
            ),
        },
        loss="negative log-likelihood per word",
        score="CoNLL score",
    )


class GenreScore(NamedTuple):
    """The CoNLL score of the documents of a genre, and their number."""

    conll: float
    num_documents: int


def genre_scores(documents: Iterable[Resolved]) -> dict[str, GenreScore]:
    """Return the score of each genre; documents without one are not counted."""
    genres: dict[str, list[Resolved]] = {}
    for one in documents:
        if one.document.genre is not None:
            genres.setdefault(one.document.genre, []).append(one)
    return {
        name: GenreScore(
            score_clusters([d.truth for d in parts], [d.predicted for d in parts]).conll, len(parts)
        )
        for name, parts in sorted(genres.items())
    }


def genre_section(by_genre: Mapping[str, GenreScore]) -> list[str]:
    """Return a table of the scores of genres, if the documents have genres."""
    if not by_genre:
        return []
    rows = [
        [literal(name), f"{100 * part.conll:.2f}", f"{part.num_documents:,}"]
        for name, part in by_genre.items()
    ]
    return ["## Genres (test)", markdown_table([["genre", "CoNLL score", "documents"], *rows])]


def _panels(test: CorefScores, documents: Sequence[Resolved]) -> list[Bars]:
    """Return the F1 of all measures, and the recall of mentions by their number of words."""
    measures = {name: Bar(scores.f1) for name, scores in _measures(test.all).items()}
    true = _counts_by_length(mention for one in documents for mention in mentions_of(one.truth))
    missed = _counts_by_length(mention for one in documents for mention in one.missed())
    lengths = {
        name: Bar(1 - missed[name] / true[name], true[name]) for name in LENGTHS if true[name]
    }
    return [
        Bars("F1 (%) of each measure", measures),
        Bars("recall (%) by words of a mention, with the number of true mentions", lengths),
    ]


def _counts_by_length(mentions: Iterable[Mention]) -> Counter[str]:
    return Counter(length_name(mention.last - mention.first + 1) for mention in mentions)


def _tree(task: CorefTask, settings: CorefSettings) -> dict[str, Any]:
    """Return the fields of results.json."""
    return {
        "task": "coreference",
        "singletons": task.singletons,
        "genres": list(task.genres),
        "documents": {split: len(task.splits[split]) for split in SPLITS},
        "mentions": {split: task.num_mentions(split) for split in SPLITS},
        "mentions_too_long": {
            split: task.num_mentions(split, settings.head.max_span_words) for split in SPLITS
        },
        "validation_documents_in_training": task.num_seen("validation"),
        "test_documents_in_training": task.num_seen("test"),
    }


def _introduction(results: Results[CorefScores], settings: CorefSettings) -> str:
    task: CorefTask = results.task
    sizes = ", ".join(f"{len(task.splits[split]):,} {split}" for split in SPLITS)
    known = results.known_words
    vectors = f" {known:.1%} of word types have a vector." if known else ""
    head = settings.head
    too_long = ", ".join(
        f"{task.num_mentions(split, head.max_span_words):,} of {task.num_mentions(split):,} {split}"
        for split in SPLITS
    )
    convention = "Clusters of one mention are neither predicted nor scored."
    if task.singletons:
        convention = (
            "Clusters of one mention are predicted and scored; a span that is not linked is one if "
            "its mention score is above 0."
        )
    return (
        f"{sizes} documents. {counted(head.encoder_layers, 'biLSTM layer')} of {head.encoder_dim} "
        "units per "
        f"direction, spans of up to {head.max_span_words} words, {head.spans_per_word} spans per "
        f"word, {head.max_antecedents} antecedents, {counted(settings.train.num_seeds, 'seed')} "
        "per mix."
        f"{vectors} {convention} True mentions with more than {head.max_span_words} words, which "
        f"cannot be found (--max-span-words): {too_long}. "
        f"{task.num_seen('test'):,} test documents and "
        f"{task.num_seen('validation'):,} validation documents also occur in the training split."
    )


def _measures(scores: ClusterScores) -> dict[str, Prf]:
    """Return the precision, recall and F1 of each measure by its name."""
    return {
        "MUC": scores.muc,
        "B-cubed": scores.b_cubed,
        "CEAF-e": scores.ceaf_e,
        "CEAF-m": scores.ceaf_m,
        "mentions": scores.mentions,
    }


def _score_table(rows: Mapping[str, ClusterScores]) -> str:
    table = [["score", "precision", "recall", "F1"]]
    for suffix, scores in rows.items():
        table.append([f"**CoNLL{suffix}**", "", "", f"{100 * scores.conll:.2f}"])
        for name, figure in _measures(scores).items():
            figures = (figure.precision, figure.recall, figure.f1)
            table.append([f"{name}{suffix}", *(f"{100 * x:.2f}" for x in figures)])
    return markdown_table(table)


def _card(results: Results[CorefScores], settings: CorefSettings) -> list[str]:
    chosen, task = results.chosen(), results.task
    best, description = chosen.outcome, chosen.description
    assert isinstance(description, CorefDescription)
    test = best.scores["test"]
    kind = "with" if task.singletons else "without"
    return [
        "# Model card: coreference resolver",
        f"**Model.** {chosen.num_weights:,} weights on {', '.join(description.input_names())}.",
        f"**Output.** Clusters of mentions of up to {settings.head.max_span_words} words, {kind} "
        "clusters of one mention.",
        f"**Training data.** `{Path(settings.data.train).name}`: {len(task.splits['train']):,} "
        f"documents, and {len(task.splits['validation']):,} more for early stopping; seed "
        f"{best.seed}.",
        f"**Test data.** `{Path(settings.data.test).name}`, {len(task.splits['test']):,} "
        f"documents: CoNLL score {test.main:.2%}, {test.chains_conll:.2%} without clusters of one "
        "mention.",
        "**Use.** `downstream.CoreferenceResolver.from_pretrained(directory).predict(texts)`, or "
        "`bilm tasks predict`. The biLM and the word vectors are found by path and verified by "
        "digest.",
        "**Limits.** Raw text is split into sentences by rules and tokenized by the tokenizer of "
        "the biLM. Where they differ from the training data, predictions are less accurate. "
        f"Documents of more than {settings.data.window_words:,} words are predicted in windows. "
        "Biases of the training data are reproduced.",
    ]
