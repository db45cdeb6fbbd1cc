"""The parts of the report of coreference: scores, errors, and a page of documents.

`errors.jsonl` has one line per test document with an error: the mentions that were missed and the
wrong ones, the true clusters that were divided, and the predicted ones that join several true ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from downstream.heads.coreference import CorefDescription, CorefPrediction
from downstream.reports.cluster_page import PAGE_FILE, ShownDocument, cluster_page
from downstream.reports.error_pages import ERRORS_FILE, SHOWN_ERRORS
from downstream.reports.pages import json_lines, markdown_table
from downstream.reports.plots import LENGTHS, Bar, Bars, length_name, plot_bars
from downstream.reports.report import Column, TaskPage
from downstream.settings.coreference import CorefSettings
from downstream.tasks.coreference import CorefScores, CorefTask
from downstream.tasks.splits import SPLITS
from downstream.texts.cluster_scores import ClusterScores, Prf
from downstream.texts.clusters import Clusters, Mention, mentions_of
from downstream.texts.counts import counted
from downstream.texts.documents import Document, DocumentFile
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


@dataclass(frozen=True)
class Resolved:
    """A test document with its true and its predicted clusters."""

    document: Document
    truth: Clusters
    predicted: Clusters

    def text(self, mention: Mention) -> str:
        """Return the words of a mention."""
        return " ".join(self.document.words[mention.first : mention.last + 1])

    def missed(self) -> list[Mention]:
        """Return the mentions that were not found."""
        return sorted(mentions_of(self.truth) - mentions_of(self.predicted))

    def wrong(self) -> list[Mention]:
        """Return the predicted mentions that are not mentions."""
        return sorted(mentions_of(self.predicted) - mentions_of(self.truth))

    def divided(self) -> list[list[Mention]]:
        """Return the true clusters whose found mentions are in several predicted ones."""
        return _in_several(self.truth, self.predicted)

    def merged(self) -> list[list[Mention]]:
        """Return the predicted clusters whose mentions are from several true ones."""
        return _in_several(self.predicted, self.truth)


def _in_several(clusters: Clusters, others: Clusters) -> list[list[Mention]]:
    owner = {mention: i for i, cluster in enumerate(others) for mention in cluster}
    known = ([mention for mention in cluster if mention in owner] for cluster in clusters)
    return [cluster for cluster in known if len({owner[mention] for mention in cluster}) > 1]


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
            "## Errors (test)",
            *_error_paragraphs(documents),
        ],
        card=_card(results, settings),
        tree=_tree(task, settings),
        pictures={SCORES_PLOT: partial(plot_bars, _panels(test, documents))},
        files={
            ERRORS_FILE: json_lines(errors(documents, task.files["test"])),
            PAGE_FILE: cluster_page(
                [
                    ShownDocument(d.document.name, d.document.sentences, d.truth, d.predicted)
                    for d in documents
                ]
            ),
        },
        loss="negative log-likelihood per word",
        score="CoNLL score",
        training_score="accuracy of antecedents",
    )


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


def errors(documents: Iterable[Resolved], file: DocumentFile) -> Iterator[dict[str, Any]]:
    """Yield a record of every document with an error."""
    for one in documents:
        record: dict[str, Any] = {
            "place": file.place(one.document),
            "doc": one.document.name,
            "missed": [[*mention, one.text(mention)] for mention in one.missed()],
            "wrong": [[*mention, one.text(mention)] for mention in one.wrong()],
        }
        for name, clusters in (("divided", one.divided()), ("merged", one.merged())):
            record[name] = [[[*m, one.text(m)] for m in cluster] for cluster in clusters]
        if any(record[name] for name in ("missed", "wrong", "divided", "merged")):
            yield record


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


def _error_paragraphs(documents: Sequence[Resolved]) -> Iterator[str]:
    divided = sum(len(one.divided()) for one in documents)
    merged = sum(len(one.merged()) for one in documents)
    yield (
        f"{divided:,} true clusters are divided into several predicted ones, and {merged:,} "
        f"predicted clusters join several true ones. `{ERRORS_FILE}` has all errors, and "
        f"`{PAGE_FILE}` the documents with their true and predicted clusters."
    )
    for heading, kind in (("missed", Resolved.missed), ("wrong", Resolved.wrong)):
        counts = Counter(one.text(m).lower() for one in documents for m in kind(one))
        yield f"{sum(counts.values()):,} {heading} mentions. The most frequent ones:"
        shown = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:SHOWN_ERRORS]
        rows = [[text, f"{count:,}"] for text, count in shown]
        yield markdown_table([[f"{heading} mention", "times"], *rows]) if rows else "None."


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
