"""Compare the layers on word senses: `python -m downstream.analyses.senses --model DIR ...`.

Computes the mean vector of every sense in the training corpus. A test instance gets the sense of
its lemma and part of speech whose mean vector is nearest to its own by cosine similarity, in each
layer and in the mean of the layers. The most frequent sense in training is the baseline. A lemma
that is not in training gets the first sense of --sense-index; without it, it gets no answer.

Files are JSON lines of tokens and instances; see docs/analyses.md. The words are taken from the
files, except that a token with spaces or underscores is several words.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bilm.errors import run_command
from downstream.analyses.nearest_senses import (
    ALL_SETS,
    MOST_FREQUENT,
    SenseOptions,
    SenseResult,
    nearest_senses,
)
from downstream.analyses.sense_errors import sense_errors
from downstream.analyses.sense_scores import Answers
from downstream.reports.pages import (
    Page,
    check_free,
    markdown_table,
    new_figure,
    percent,
    write_page,
)
from downstream.settings.flags import model_parser, set_up_analysis

FORMAT = "bilm-senses"


def main(argv: Sequence[str] | None = None) -> int:
    """Answer the test sets with every layer and write the page."""
    options = _parse(argv)
    check_free(options.output, FORMAT, options.overwrite)
    set_up_analysis("matplotlib")
    result = nearest_senses(options)
    write_page(options.output, FORMAT, senses_page(result), options.overwrite)
    sys.stdout.write(f"{f1_table(_by_set(result))}\n\nplot: {options.output / 'senses.png'}\n")
    return 0


def _parse(argv: Sequence[str] | None) -> SenseOptions:
    parser = model_parser(__doc__)
    parser.add_argument(
        "--train", type=Path, required=True, help="JSON lines to train on, plain or compressed"
    )
    parser.add_argument(
        "--test",
        type=Path,
        nargs="+",
        required=True,
        help="one or more files of JSON lines to test on; each is scored, and all together",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        help="directory of the cached representations (default: `representations` in the parent "
        "directory of the output)",
    )
    parser.add_argument(
        "--sense-index",
        type=Path,
        help="index.sense of WordNet; lemmas that are not in training get their first sense",
    )
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="show progress bars on stderr (default: if stderr is a terminal)",
    )
    return SenseOptions(**vars(parser.parse_args(argv)))


def _by_set(result: SenseResult) -> dict[str, Answers]:
    """Return the answers of each set, and of all sets if there are several."""
    together = {ALL_SETS: result.all_sets()} if len(result.by_set) > 1 else {}
    return {**result.by_set, **together}


def f1_table(answers: Mapping[str, Answers]) -> str:
    """Return a Markdown table of F1 with a row per choice of vectors and a column per set."""
    scores = {name: part.scores() for name, part in answers.items()}
    rows = [["vectors", *scores]]
    for name in next(iter(scores.values())):
        rows.append([name, *(percent(part[name].f1) for part in scores.values())])
    return markdown_table(rows)


def _counts_table(answers: Mapping[str, Answers]) -> str:
    counts = {name: part.counts() for name, part in answers.items()}
    rows = [["instances", *counts]]
    for key in next(iter(counts.values())):
        label = "total" if key == "instances" else key.replace("_", " ")
        rows.append([label, *(f"{part[key]:,}" for part in counts.values())])
    return markdown_table(rows)


def _precision_table(answers: Answers) -> str:
    rows = [["vectors", "precision", "recall", "F1"]]
    for name, scores in answers.scores().items():
        figures = (scores.precision, scores.recall, scores.f1)
        rows.append([name, *(percent(figure) for figure in figures)])
    return markdown_table(rows)


def senses_page(result: SenseResult) -> Page:
    """Return the page of the analysis."""
    options, by_set, total = result.options, _by_set(result), result.all_sets()
    by_pos = {pos: total.of_pos(pos) for pos in total.parts_of_speech()}
    errors = sense_errors(result)
    training = {
        "instances": result.num_instances,
        "lemmas": result.num_lemmas,
        "senses": result.num_senses,
    }
    return Page(
        figures={
            "model": str(options.model),
            "train": {"file": str(options.train), **training},
            "sense_index": None if options.sense_index is None else str(options.sense_index),
            "counts": {name: answers.counts() for name, answers in by_set.items()},
            "scores": {name: _scores(answers) for name, answers in by_set.items()},
            "by_pos": {pos: _scores(answers) for pos, answers in by_pos.items()},
            "only_correct": total.only_correct(),
            "best_vectors": errors.name,
        },
        paragraphs=[
            "# Word senses by the nearest mean vector",
            f"Trained on {training['instances']:,} instances of {training['senses']:,} senses of "
            f"{training['lemmas']:,} lemmas. F1 in percent, by test set.",
            f1_table(by_set),
            "All test sets together.",
            _precision_table(total),
            "F1 by part of speech, all test sets together.",
            f1_table(by_pos),
            "Instances. The lemma and part of speech of an instance, or one of its senses, may not "
            "be in training. The lemma then has the first sense of the sense index, or no answer.",
            _counts_table(by_set),
            "![F1 by layer](senses.png)",
            *errors.paragraphs(),
        ],
        pictures={"senses.png": plot_senses(by_set)},
        files=errors.files(),
    )


def _scores(answers: Answers) -> dict[str, Any]:
    return {name: scores.as_json() for name, scores in answers.scores().items()}


def plot_senses(by_set: Mapping[str, Answers]) -> Any:
    """Draw F1 by layer, with one line per test set, dashed at its baseline.

    The mean of the layers is a mark of its own at the right.
    """
    figure, (axis,) = new_figure(1, 1, width=7.0, height=5.2)
    for i, (name, answers) in enumerate(by_set.items()):
        scores = answers.scores()
        baseline = 100 * scores.pop(MOST_FREQUENT).f1
        values = [100 * score.f1 for score in scores.values()]
        is_total = i == len(by_set) - 1
        color, width = ("black", 2.5) if is_total else (f"C{i % 10}", 1.2)
        label = f"{name} ({MOST_FREQUENT}: {baseline:.1f})"
        places = [*range(len(values) - 1), len(values) - 0.6]
        axis.plot(places[:-1], values[:-1], "o-", color=color, linewidth=width, label=label)
        axis.plot(places[-1:], values[-1:], "D", color=color)
        axis.axhline(baseline, color=color, linestyle="--", linewidth=0.8)
        if is_total:
            _annotate(axis, places, values)
    names = [name.replace(" (", "\n(").replace("of the", "of\nthe") for name in scores]
    axis.axvline(places[-1] - 0.7, color="grey", linewidth=0.8, linestyle=":")
    axis.set_xticks(places, names)
    axis.set_xlim(-0.5, places[-1] + 0.5)
    axis.margins(y=0.15)
    axis.set_ylabel("F1 (%); dashed: most frequent sense")
    axis.grid(axis="y", alpha=0.3)
    handles = axis.get_legend_handles_labels()
    figure.legend(*handles, fontsize="small", ncols=2, loc="outside upper center")
    return figure


def _annotate(axis: Any, places: Sequence[float], values: Sequence[float]) -> None:
    """Write the values below their marks, on white, so that lines do not hide them."""
    box = {"boxstyle": "square,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.9}
    for place, value in zip(places, values, strict=True):
        axis.annotate(
            f"{value:.1f}",
            (place, value),
            (0, -8),
            textcoords="offset points",
            ha="center",
            va="top",
            zorder=5,
            bbox=box,
        )


if __name__ == "__main__":
    run_command(main)
