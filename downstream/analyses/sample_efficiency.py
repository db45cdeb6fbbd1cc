"""How much labelled text is needed: `python -m downstream.analyses.sample_efficiency --model ...`.

Takes the flags of `python -m downstream.classify`. The head is trained on 1, 3, 10, 30 and 100 % of
the training texts (and stopped by as large a share of the validation texts) beside TF-IDF with
logistic regression and, with `--vectors`, the mean of word vectors. One test set, several seeds;
a seed draws the texts, and a larger share holds the smaller ones. Where texts are few, so are those
of a batch, unless `--batch-size` says otherwise.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilm.errors import ConfigError, run_command
from downstream.analyses.shared import parse, with_section
from downstream.settings.sections import Settings

if TYPE_CHECKING:
    from downstream.features.batches import Ids
    from downstream.tasks.classification import Task

logger = logging.getLogger(__name__)

FORMAT = "bilm-sample-efficiency"
SHARES = (0.01, 0.03, 0.1, 0.3, 1.0)
NAMES = {
    "bilm": "frozen biLM",
    "tfidf": "TF-IDF, logistic regression",
    "glove": "mean of word vectors",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    settings, arguments = parse("sample_efficiency", __doc__, argv, _add_flags)
    sys.stdout.write(compare_shares(settings, arguments.shares, arguments.progress))
    return 0


def _add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shares",
        type=lambda text: tuple(float(number) for number in text.split(",")),
        default=SHARES,
        metavar="SHARE[,SHARE]",
        help=f"of the training texts (default: {','.join(map(str, SHARES))})",
    )


def compare_shares(
    settings: Settings, shares: Sequence[float], progress: bool | None = None
) -> str:
    """Fit all methods on all shares, write the page, and return its table."""
    from downstream.reports.pages import check_free, markdown_table, percent, write_page
    from downstream.tasks.classification import read_task
    from downstream.tasks.scores import mean_and_spread

    if not shares or not all(0 < share <= 1 for share in shares):
        raise ConfigError(f"--shares has {list(shares)}; each must be above 0 and at most 1")
    output = Path(settings.output)
    check_free(output, FORMAT, settings.overwrite)
    task = read_task(settings)
    figures: list[dict[str, Any]] = []
    for share in sorted(set(shares)):
        by_seed = [
            _accuracies(settings, task, share, settings.train.seed + i, progress)
            for i in range(settings.train.num_seeds)
        ]
        of_share: dict[str, Any] = {"share": share, "texts": by_seed[0][0]}
        for method in by_seed[0][1]:
            values = [accuracies[method] for _, accuracies in by_seed]
            mean, std = mean_and_spread(values)
            of_share[method] = {"mean": mean, "std": std, "values": values}
        figures.append(of_share)
    methods = [method for method in NAMES if method in figures[0]]
    rows = [["share", "texts", *(NAMES[method] for method in methods)]]
    for row in figures:
        cells = [percent(row[method]["mean"], row[method]["std"]) for method in methods]
        rows.append([f"{row['share']:.3g}", f"{row['texts']:,}", *cells])
    table = markdown_table(rows)
    page = [
        "# How much labelled text is needed",
        f"Test accuracy in per cent ({len(task.splits['test']):,} texts), mean and standard "
        f"deviation over {settings.train.num_seeds} seeds.",
        table,
        "![accuracy by training texts](sample_efficiency.png)",
    ]
    tree = {"settings": settings.model_dump(mode="json"), "shares": figures}
    pictures = {"sample_efficiency.png": plot_shares(figures)}
    write_page(output, FORMAT, tree, page, pictures, settings.overwrite)
    return f"{table}\n\npicture: {output / 'sample_efficiency.png'}\n"


def part_of(task: Task, share: float, seed: int) -> Task:
    """The task with `share` of each class of its training and validation texts, at least one."""
    splits = dict(task.splits)
    for name in ("train", "validation"):
        splits[name] = splits[name].subset(_draw(splits[name].labels, share, seed))
    return dataclasses.replace(task, splits=splits)


def _draw(labels: Ids, share: float, seed: int) -> Ids:
    """Places of a share of each class; the same seed draws a smaller share out of a larger."""
    import numpy as np

    rng = np.random.default_rng(seed)
    drawn = []
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        drawn.append(members[: math.ceil(share * len(members))])
    return np.sort(np.concatenate(drawn))


def _accuracies(
    settings: Settings, task: Task, share: float, seed: int, progress: bool | None
) -> tuple[int, dict[str, float]]:
    """The number of training texts, and the test accuracy of each method."""
    from downstream.baselines.__main__ import texts_of
    from downstream.baselines.linear import glove_mean, tf_idf
    from downstream.training.experiment import run

    part = part_of(task, share, seed)
    vectors = settings.head.vectors
    alone = with_section(settings.without_vectors(), "mix", kinds=settings.mix.kinds[:1])
    alone = with_section(alone, "train", seed=seed, num_seeds=1)
    (outcome,) = run(alone, part, Path(settings.model), progress).outcomes
    data = texts_of(part)
    result = {
        "bilm": outcome.scores["test"].accuracy,
        "tfidf": tf_idf(data, seed % 2**32).scores["test"].accuracy,
    }
    if vectors is not None:
        result["glove"] = glove_mean(data, vectors).scores["test"].accuracy
    shown = ", ".join(f"{name} {100 * value:.2f} %" for name, value in result.items())
    logger.info("%.3g of the training texts, seed %d: %s", share, seed, shown)
    return len(part.splits["train"]), result


def plot_shares(figures: Sequence[dict[str, Any]]) -> Any:
    """Accuracy by the number of training texts, a band for the spread over seeds."""
    from downstream.reports.pages import new_figure

    figure, (axis,) = new_figure(1, 1, width=6.2, height=4.2)
    counts = [row["texts"] for row in figures]
    for i, (method, name) in enumerate(NAMES.items()):
        if method not in figures[0]:
            continue
        means = [100 * row[method]["mean"] for row in figures]
        stds = [100 * row[method]["std"] for row in figures]
        low = [mean - std for mean, std in zip(means, stds, strict=True)]
        high = [mean + std for mean, std in zip(means, stds, strict=True)]
        axis.plot(counts, means, "o-", color=f"C{i}", label=name)
        axis.fill_between(counts, low, high, color=f"C{i}", alpha=0.18, linewidth=0)
    axis.set_xscale("log")
    labels = [f"{row['texts']:,}\n{100 * row['share']:.3g} %" for row in figures]
    axis.set_xticks(counts, labels)
    axis.minorticks_off()
    axis.set_xlabel("training texts")
    axis.set_ylabel("test accuracy (%)")
    axis.grid(alpha=0.3)
    axis.legend()
    return figure


if __name__ == "__main__":
    run_command(main)
