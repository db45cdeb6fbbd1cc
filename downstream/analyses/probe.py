"""Probe the layers for parts of speech: `python -m downstream.analyses.probe --model DIR ...`.

Fits a linear probe (logistic regression) per layer, from the vector of a word in its sentence to
its tag in CoNLL-U files, and compares it with the most frequent tag of each word. The words are
taken from the files; the model's tokenizer is not used.

Memory: 4 x max-words x layers x dim bytes for the training words (0.15 GB for 50,000 at 3 x 256).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bilm.errors import run_command
from downstream.analyses.linear_probe import BY_WORD, ProbeOptions, ProbeResult, probe
from downstream.reports.pages import (
    Page,
    check_free,
    layer_name,
    markdown_table,
    new_figure,
    percent,
    write_page,
)
from downstream.settings.flags import model_parser, set_up_analysis
from downstream.texts.conllu import COLUMNS

FORMAT = "bilm-probe"

_MAX_TAGS_SHOWN = 25


def main(argv: Sequence[str] | None = None) -> int:
    """Probe every layer and write the page."""
    options = _parse(argv)
    check_free(options.output, FORMAT, options.overwrite)
    set_up_analysis("sklearn", "matplotlib")
    result = probe(options)
    write_page(options.output, FORMAT, probe_page(result), options.overwrite)
    sys.stdout.write(f"{probe_table(result)}\n\nplot: {options.output / 'probe.png'}\n")
    return 0


def _parse(argv: Sequence[str] | None) -> ProbeOptions:
    parser = model_parser(__doc__)
    parser.add_argument(
        "--train", type=Path, required=True, help="CoNLL-U file to train on, plain or .gz"
    )
    parser.add_argument(
        "--test", type=Path, required=True, help="CoNLL-U file to test on, plain or .gz"
    )
    parser.add_argument(
        "--tags", choices=sorted(COLUMNS), default="upos", help="column of tags (default: upos)"
    )
    parser.add_argument(
        "--max-words",
        type=int,
        default=50_000,
        help="maximum number of words per file, in randomly drawn sentences (default: 50000)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the drawn sentences (default: 0)"
    )
    parser.add_argument(
        "--strength",
        type=float,
        default=1.0,
        help="C of the logistic regression, per 10,000 words (default: 1)",
    )
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="show progress bars on stderr (default: if stderr is a terminal)",
    )
    return ProbeOptions(**vars(parser.parse_args(argv)))


def probe_table(result: ProbeResult) -> str:
    """Return a Markdown table with a row per layer."""
    rows = [["vectors", "accuracy", "macro F1"]]
    for name, scores in result.scores().items():
        rows.append([name, percent(scores.accuracy), percent(scores.macro_f1)])
    return markdown_table(rows)


def probe_page(result: ProbeResult) -> Page:
    """Return the page of a probe."""
    options, num_words = result.options, result.num_words
    return Page(
        figures={
            "model": str(options.model),
            "words": dict(num_words),
            "tags": list(result.tags),
            "strength": options.strength,
            "seed": options.seed,
            "scores": {name: scores.as_json() for name, scores in result.scores().items()},
        },
        paragraphs=[
            f"# Linear probes for {options.tags}",
            f"Trained on {num_words['train']:,} words and tested on {num_words['test']:,}; "
            "accuracy and macro F1 in percent.",
            probe_table(result),
            "![accuracy by layer and recall by tag](probe.png)",
        ],
        pictures={"probe.png": plot_probe(result)},
    )


def plot_probe(result: ProbeResult) -> Any:
    """Draw accuracy by layer (left) and the recall of each tag (right)."""
    support = {tag: result.by_word.by_class[tag].support for tag in result.tags}
    tags = sorted((tag for tag in result.tags if support[tag]), key=lambda tag: -support[tag])
    height = max(3.6, 0.26 * len(result.tags) + 1.2)
    figure, (left, right) = new_figure(1, 2, width=5.2, height=height)
    _plot_accuracy(left, result)
    image = _plot_recall(right, result, tags[:_MAX_TAGS_SHOWN])
    figure.colorbar(image, ax=right)
    return figure


def _plot_accuracy(axis: Any, result: ProbeResult) -> None:
    layers = range(len(result.by_layer))
    accuracies = [100 * scores.accuracy for scores in result.by_layer]
    axis.plot(layers, accuracies, "o-", markersize=8, label="linear probe")
    for layer, accuracy in zip(layers, accuracies, strict=True):
        axis.annotate(
            f"{accuracy:.1f}", (layer, accuracy), (0, 9), textcoords="offset points", ha="center"
        )
    baseline = 100 * result.by_word.accuracy
    label = f"{BY_WORD} ({baseline:.1f})"
    axis.axhline(baseline, color="grey", linestyle="--", linewidth=1, label=label)
    axis.margins(x=0.2, y=0.2)
    axis.set_xticks(layers, [layer_name(layer).replace(" (", "\n(") for layer in layers])
    axis.set_ylabel("accuracy (%)")
    axis.grid(axis="y", alpha=0.3)
    axis.legend(fontsize="small", loc="best")


def _plot_recall(axis: Any, result: ProbeResult, tags: Sequence[str]) -> Any:
    """Draw the recall of each tag for the most-frequent-tag baseline and for each layer."""
    import numpy as np

    columns = [result.by_word, *result.by_layer]
    recall = np.array([[100 * scores.by_class[tag].recall for scores in columns] for tag in tags])
    image = axis.imshow(recall, aspect="auto", cmap="viridis", vmin=0, vmax=100)
    names = ["by word", *(f"layer {i}" for i in range(len(result.by_layer)))]
    axis.set_xticks(range(len(names)), names)
    support = [result.by_word.by_class[tag].support for tag in tags]
    labels = [f"{tag} ({count:,})" for tag, count in zip(tags, support, strict=True)]
    axis.set_yticks(range(len(tags)), labels)
    for i, j in np.ndindex(recall.shape):
        color = "white" if recall[i, j] < 60 else "black"
        axis.text(j, i, f"{recall[i, j]:.0f}", ha="center", va="center", color=color, size=8)
    axis.set_title("recall of each tag (%)", fontsize="medium")
    return image


if __name__ == "__main__":
    run_command(main)
