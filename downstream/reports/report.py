"""What a run leaves behind: figures as JSON, a page to read, pictures, the card, the classifier."""

from __future__ import annotations

import json
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
    """Write the whole report, or nothing."""
    best, model, description = results.chosen()
    with atomic_directory(Path(settings.output), CheckpointError, settings.overwrite) as place:
        tree = _results_tree(results, settings, finetuned)
        write_text(place / RESULTS_FILE, json.dumps(tree, indent=1, allow_nan=False) + "\n")
        plot_confusion(best.scores, results.task.classes, place / "confusion.png")
        plot_curves(
            {mix: [o.history for o in seeds] for mix, seeds in results.by_mix().items()},
            place / "curves.png",
        )
        if shares := _mean_shares(results):
            plot_shares(shares, place / "mix.png")
        write_text(place / "report.md", _page(results, settings, best, finetuned))
        write_text(place / "model_card.md", _card(results, settings, best))
        save_classifier(description, model, place)


def summary_table(results: Results) -> str:
    """A line per mix: accuracies with their spread, and the weights of the layers."""
    rows = [["mix", "validation", "test", "macro F1", "layers", "gamma"]]
    shares = _mean_shares(results)
    for mix, outcomes in results.by_mix().items():
        figures = [
            _percent(*spread_of(outcomes, split, figure), len(outcomes))
            for split, figure in (
                ("validation", "accuracy"),
                ("test", "accuracy"),
                ("test", "macro_f1"),
            )
        ]
        mixed = [
            (name, values)
            for name, values in shares.items()
            if name.removesuffix(" (output)") == mix
        ]
        layers = "; ".join(" ".join(f"{value:.2f}" for value in values) for _, values in mixed)
        gammas = "; ".join(
            f"{sum(o.gammas[place] for o in outcomes) / len(outcomes):.2f}"
            for place in outcomes[0].gammas
        )
        rows.append([mix, *figures, layers or "-", gammas or "-"])
    return markdown_table(rows)


def _results_tree(
    results: Results, settings: Settings, finetuned: dict[str, Any] | None
) -> dict[str, Any]:
    best, _, description = results.chosen()
    return {
        "format": FORMAT,
        "version": 1,
        "settings": settings.model_dump(mode="json"),
        "bilm": description.bilm.model_dump(mode="json"),
        "classes": list(results.task.classes),
        "texts": {split: len(results.task.labels[split]) for split in SPLITS},
        "finetuned": finetuned,
        "known_word_types": results.known_words,
        "summary": {
            mix: {
                split: {
                    figure: dict(
                        zip(("mean", "std"), spread_of(outcomes, split, figure), strict=True)
                    )
                    for figure in _FIGURES
                }
                for split in SPLITS
            }
            for mix, outcomes in results.by_mix().items()
        },
        "best": {"mix": best.mix, "seed": best.seed},
        "outcomes": [asdict(outcome) for outcome in results.outcomes],
        "seconds": results.seconds,
        "peak_memory_gib": peak_memory_gib(),
    }


def peak_memory_gib() -> float:
    """The most memory that this process has held."""
    return peak_memory_bytes() / 2**30


def _mean_shares(results: Results) -> dict[str, list[float]]:
    """Of each layer by mix, the mean over seeds; a second mix of a head is named by its place."""
    result = {}
    for mix, outcomes in results.by_mix().items():
        for place in outcomes[0].shares:
            columns = zip(*(outcome.shares[place] for outcome in outcomes), strict=True)
            name = mix if place == "input" else f"{mix} ({place})"
            result[name] = [sum(column) / len(outcomes) for column in columns]
    return result


def _page(
    results: Results, settings: Settings, best: Outcome, finetuned: dict[str, Any] | None
) -> str:
    task = results.task
    sizes = ", ".join(f"{len(task.labels[split]):,} {split}" for split in SPLITS)
    parts = [
        "# Text classification on a frozen biLM",
        f"{len(task.classes)} classes; {sizes} texts. Head `{settings.head.kind}`, "
        f"{settings.train.num_seeds} seed(s) per mix"
        + (
            f"; {results.known_words:.1%} of word types have a vector"
            if results.known_words
            else ""
        )
        + ".",
        "## Mixes compared",
        "Accuracy and macro F1 in per cent, mean and standard deviation over seeds; the share of "
        "each layer, token encoder first, and gamma. For `learned` the share is that of the "
        "squared norm of its first matrix.",
        summary_table(results),
    ]
    if _mean_shares(results):
        parts.append("![weights of the layers](mix.png)")
    if finetuned is not None:
        parts += [
            "## Fine-tuning of the biLM",
            f"Held-out perplexity on the task's own text: {finetuned['perplexity_before']:.2f} "
            f"before, {finetuned['perplexity_after']:.2f} after.",
        ]
    parts += [
        f"## The best head: `{best.mix}`, seed {best.seed}",
        "Chosen by validation accuracy; this is the classifier kept here.",
        _split_table(best),
        "![confusion matrices](confusion.png)",
        _class_table(best),
        "## Learning curves",
        "![learning curves](curves.png)",
        "## Cost",
        f"Representations {results.seconds['representations']:.1f} s, heads "
        f"{results.seconds['heads']:.1f} s; at most {peak_memory_gib():.2f} GiB of memory.",
        "## Settings",
        f"```json\n{settings.model_dump_json(indent=2)}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _card(results: Results, settings: Settings, best: Outcome) -> str:
    (_, model, description), task = results.chosen(), results.task
    test = best.scores["test"]
    num_weights = sum(p.numel() for p in model.parameters() if p.requires_grad)
    vectors = f" beside word vectors of {description.vector_dim}" if description.vectors else ""
    return (
        "\n\n".join(
            [
                "# Model card: text classifier",
                f"**What it is.** A `{settings.head.kind}` head of {num_weights:,} weights on a "
                f"frozen biLM of {description.num_layers} layers of {description.dim} numbers"
                f"{vectors}; the layers are mixed by `{best.mix}`.",
                f"**Classes.** {', '.join(task.classes)}.",
                f"**Trained on** `{Path(settings.data.train).name}`: {len(task.labels['train']):,} "
                f"texts, {len(task.labels['validation']):,} more for stopping, seed {best.seed}.",
                f"**Tested on** `{Path(settings.data.test).name}`, {len(task.labels['test']):,} "
                f"texts: accuracy {test.accuracy:.2%}, macro F1 {test.macro_f1:.2%}.",
                "**Use.** `downstream.TextClassifier.from_pretrained(directory).predict(texts)`, "
                "or `python -m downstream.predict`. It needs the biLM"
                + (" and the word vectors" if description.vectors else "")
                + " that it was trained with, which are found by path and checked by digest: biLM "
                f"`{description.bilm.digest[:12]}`.",
                f"**Limits.** Every text gets one of the {len(task.classes)} classes, also one "
                "that belongs to none; probabilities are not calibrated; texts are cut to "
                f"{description.max_words} words; what the training texts are biased to, it is too.",
            ]
        )
        + "\n"
    )


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


def _percent(mean: float, std: float, count: int) -> str:
    return percent(mean, std if count > 1 else None)
