"""The report of `downstream.classify`: figures, a page, pictures, a model card, the classifier."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bilm.distributed.process import peak_memory_bytes
from bilm.errors import CheckpointError
from bilm.files.writing import atomic_directory, write_text
from downstream.heads.saved_head import save_classifier
from downstream.reports.pages import RESULTS_FILE, markdown_table, percent
from downstream.reports.plots import plot_confusion, plot_curves, plot_shares
from downstream.settings.sections import Settings
from downstream.tasks.classification import SPLITS
from downstream.training.experiment import Outcome, Results, spread_of

FORMAT = "bilm-report"

_FIGURES = {
    "accuracy": "accuracy",
    "macro_f1": "macro F1",
    "macro_precision": "precision",
    "macro_recall": "recall",
}


def write_report(
    results: Results, settings: Settings, finetuned: dict[str, Any] | None = None
) -> None:
    """Write all files of the report, atomically."""
    chosen = results.chosen()
    best = chosen.outcome
    with atomic_directory(Path(settings.output), CheckpointError, settings.overwrite) as directory:
        tree = _results_tree(results, settings, finetuned)
        write_text(directory / RESULTS_FILE, json.dumps(tree, indent=1, allow_nan=False) + "\n")
        plot_confusion(best.scores, results.task.classes, directory / "confusion.png")
        plot_curves(
            {mix: [o.history for o in outcomes] for mix, outcomes in results.by_mix().items()},
            directory / "curves.png",
        )
        if shares := _labelled_shares(results):
            plot_shares(shares, directory / "mix.png")
        write_text(directory / "report.md", _page(results, settings, best, finetuned))
        write_text(directory / "model_card.md", _card(results, settings, best))
        save_classifier(chosen.description, chosen.model, directory)


def summary_table(results: Results) -> str:
    """Return a table with a row per mix: accuracies with their spread, layer weights, gamma."""
    rows = [["mix", "validation", "test", "macro F1", "layers", "gamma"]]
    columns = (("validation", "accuracy"), ("test", "accuracy"), ("test", "macro_f1"))
    for mix, outcomes in results.by_mix().items():
        figures = [_percent(outcomes, split, figure) for split, figure in columns]
        layers = "; ".join(
            " ".join(f"{share:.2f}" for share in shares)
            for shares in _mean_shares(outcomes).values()
        )
        gammas = "; ".join(
            f"{sum(o.gammas[place] for o in outcomes) / len(outcomes):.2f}"
            for place in outcomes[0].gammas
        )
        rows.append([mix, *figures, layers or "-", gammas or "-"])
    return markdown_table(rows)


def _results_tree(
    results: Results, settings: Settings, finetuned: dict[str, Any] | None
) -> dict[str, Any]:
    chosen = results.chosen()
    return {
        "format": FORMAT,
        "version": 1,
        "settings": settings.model_dump(mode="json"),
        "bilm": chosen.description.bilm.model_dump(mode="json"),
        "classes": list(results.task.classes),
        "texts": {split: len(results.task.splits[split]) for split in SPLITS},
        "finetuned": finetuned,
        "known_word_types": results.known_words,
        "summary": {mix: _summary(outcomes) for mix, outcomes in results.by_mix().items()},
        "best": {"mix": chosen.outcome.mix, "seed": chosen.outcome.seed},
        "outcomes": [asdict(outcome) for outcome in results.outcomes],
        "seconds": results.seconds,
        "peak_memory_gib": peak_memory_bytes() / 2**30,
    }


def _summary(outcomes: list[Outcome]) -> dict[str, dict[str, dict[str, float]]]:
    """Return the mean and standard deviation over seeds, by split and figure."""
    summary: dict[str, dict[str, dict[str, float]]] = {}
    for split in SPLITS:
        summary[split] = {}
        for figure in _FIGURES:
            mean, std = spread_of(outcomes, split, figure)
            summary[split][figure] = {"mean": mean, "std": std}
    return summary


def _mean_shares(outcomes: Sequence[Outcome]) -> dict[str, list[float]]:
    """Return the share of each layer, averaged over seeds, for each place where a mix enters."""
    result = {}
    for place in outcomes[0].shares:
        columns = zip(*(outcome.shares[place] for outcome in outcomes), strict=True)
        result[place] = [sum(column) / len(outcomes) for column in columns]
    return result


def _labelled_shares(results: Results) -> dict[str, list[float]]:
    """Return the mean shares of all mixes; a mix that enters at the output is labelled so."""
    return {
        mix if place == "input" else f"{mix} ({place})": shares
        for mix, outcomes in results.by_mix().items()
        for place, shares in _mean_shares(outcomes).items()
    }


def _page(
    results: Results, settings: Settings, best: Outcome, finetuned: dict[str, Any] | None
) -> str:
    task = results.task
    sizes = ", ".join(f"{len(task.splits[split]):,} {split}" for split in SPLITS)
    known = results.known_words
    vectors = f"; {known:.1%} of word types have a vector" if known else ""
    parts = [
        "# Text classification on a frozen biLM",
        f"{len(task.classes)} classes; {sizes} texts. Head `{settings.head.kind}`, "
        f"{settings.train.num_seeds} seed(s) per mix{vectors}.",
        "## Comparison of mixes",
        "Accuracy and macro F1 in percent, mean and standard deviation over seeds; the share of "
        "each layer, token encoder first; and gamma. For `learned`, the share of a layer is its "
        "share of the squared norm of the first weight matrix.",
        summary_table(results),
    ]
    if _labelled_shares(results):
        parts.append("![layer weights](mix.png)")
    if finetuned is not None:
        parts += [
            "## Fine-tuning of the biLM",
            "Held-out perplexity on the texts of the task: "
            f"{finetuned['perplexity_before']:.2f} before, {finetuned['perplexity_after']:.2f} "
            "after.",
        ]
    parts += [
        f"## Best head: `{best.mix}`, seed {best.seed}",
        "Selected by validation accuracy; this directory contains its classifier.",
        _split_table(best),
        "![confusion matrices](confusion.png)",
        _class_table(best),
        "## Learning curves",
        "![learning curves](curves.png)",
        "## Cost",
        f"Representations {results.seconds['representations']:.1f} s, heads "
        f"{results.seconds['heads']:.1f} s; peak memory {peak_memory_bytes() / 2**30:.2f} GiB.",
        "## Settings",
        f"```json\n{settings.model_dump_json(indent=2)}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _card(results: Results, settings: Settings, best: Outcome) -> str:
    chosen, task = results.chosen(), results.task
    description = chosen.description
    test = best.scores["test"]
    num_weights = sum(p.numel() for p in chosen.model.parameters() if p.requires_grad)
    vectors = (
        f" and word vectors of {description.vector_dim} dimensions" if description.vectors else ""
    )
    files = "the biLM and the word vectors" if description.vectors else "the biLM"
    parts = [
        "# Model card: text classifier",
        f"**Model.** A `{settings.head.kind}` head with {num_weights:,} weights on a frozen biLM "
        f"with {description.num_layers} layers of {description.dim} dimensions{vectors}; the "
        f"layers are mixed by `{best.mix}`.",
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
        "that belongs to none of them. Probabilities are not calibrated. Texts are cut to "
        f"{description.max_words} words. Biases of the training texts are reproduced.",
    ]
    return "\n\n".join(parts) + "\n"


def _split_table(outcome: Outcome) -> str:
    rows = [["split", *_FIGURES.values()]]
    for split in SPLITS:
        scores = outcome.scores[split]
        rows.append([split, *(f"{100 * getattr(scores, name):.2f}" for name in _FIGURES)])
    return markdown_table(rows)


def _class_table(outcome: Outcome) -> str:
    rows = [["class (test)", "precision", "recall", "F1", "texts"]]
    for name, scores in outcome.scores["test"].by_class.items():
        figures = [f"{100 * x:.2f}" for x in (scores.precision, scores.recall, scores.f1)]
        rows.append([name, *figures, f"{scores.support:,}"])
    return markdown_table(rows)


def _percent(outcomes: list[Outcome], split: str, figure: str) -> str:
    mean, std = spread_of(outcomes, split, figure)
    return percent(mean, std if len(outcomes) > 1 else None)
