"""Compare training set sizes: `python -m downstream.analyses.sample_efficiency --model DIR ...`.

Accepts the flags of `python -m downstream.classify`. The head is trained on 1, 3, 10, 30 and 100%
of the training texts (and stopped early on the same share of the validation texts). It is compared
with TF-IDF and logistic regression and, with `--vectors`, with the mean of word vectors. The test
set is always the same. The texts are drawn with the seed, and a larger share contains the smaller
ones. With few texts, batches are smaller too, unless `--batch-size` is given.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilm.errors import ConfigError, run_command
from downstream.analyses.shared import Accuracy, analysis_settings, with_section
from downstream.reports.pages import Page, check_free, markdown_table, new_figure, write_page
from downstream.settings.flags import parse, read_settings, set_up
from downstream.settings.sections import Settings
from downstream.tasks.classification import Task, read_task

if TYPE_CHECKING:
    from downstream.features.batches import Ids

logger = logging.getLogger(__name__)

FORMAT = "bilm-sample-efficiency"

SHARES = (0.01, 0.03, 0.1, 0.3, 1.0)

NAMES = {
    "bilm": "frozen biLM",
    "tfidf": "TF-IDF, logistic regression",
    "glove": "mean of word vectors",
}


@dataclass(frozen=True)
class ShareFigures:
    """The test accuracy of each method, trained on a share of the texts."""

    share: float
    num_texts: int
    accuracies: dict[str, Accuracy]  # by method

    def as_json(self) -> dict[str, Any]:
        """Return the fields of results.json."""
        methods = {method: dataclasses.asdict(a) for method, a in self.accuracies.items()}
        return {"share": self.share, "texts": self.num_texts, **methods}


@dataclass(frozen=True)
class ShareComparison:
    """The results for each share, smallest first."""

    settings: Settings
    num_test_texts: int
    shares: Sequence[ShareFigures]

    @property
    def methods(self) -> list[str]:
        """The methods that were compared."""
        return [method for method in NAMES if method in self.shares[0].accuracies]


def main(argv: Sequence[str] | None = None) -> int:
    """Compare the methods and write the page."""
    arguments = parse("analyses.sample_efficiency", __doc__, argv, _add_flags)
    settings = analysis_settings(read_settings(arguments, Settings))
    output = Path(settings.output)
    check_free(output, FORMAT, settings.overwrite)
    set_up()
    comparison = compare_shares(settings, arguments.shares, arguments.progress)
    write_page(output, FORMAT, shares_page(comparison), settings.overwrite)
    picture = output / "sample_efficiency.png"
    sys.stdout.write(f"{shares_table(comparison)}\n\nplot: {picture}\n")
    return 0


def _add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shares",
        type=lambda text: tuple(float(number) for number in text.split(",")),
        default=SHARES,
        metavar="SHARE[,SHARE]",
        help=f"shares of the training texts (default: {','.join(map(str, SHARES))})",
    )


def compare_shares(
    settings: Settings, shares: Sequence[float], progress: bool | None = None
) -> ShareComparison:
    """Fit every method on every share of the training texts, once per seed."""
    if not shares or not all(0 < share <= 1 for share in shares):
        raise ConfigError(f"--shares is {list(shares)}; each must be above 0 and at most 1")
    settings.without_vectors()  # reject settings that need word vectors
    task = read_task(settings)
    if settings.head.vectors is not None:
        from downstream.features.word_vectors import check_vectors

        check_vectors(settings.head.vectors)
    first = settings.train.seed
    seeds = range(first, first + settings.train.num_seeds)
    figures = []
    for share in sorted(set(shares)):
        parts = [part_of(task, share, seed) for seed in seeds]
        by_seed = []
        for seed, part in zip(seeds, parts, strict=True):
            accuracies = _accuracies(settings, part, seed, progress)
            shown = ", ".join(f"{name} {100 * value:.2f}%" for name, value in accuracies.items())
            logger.info("%.3g of the training texts, seed %d: %s", share, seed, shown)
            by_seed.append(accuracies)
        methods = {
            method: Accuracy.of([accuracies[method] for accuracies in by_seed])
            for method in by_seed[0]
        }
        figures.append(ShareFigures(share, len(parts[0].splits["train"]), methods))
    return ShareComparison(settings, len(task.splits["test"]), figures)


def part_of(task: Task, share: float, seed: int) -> Task:
    """Return the task with `share` of each class of its training and validation texts.

    At least one text of each class is kept.
    """
    splits = dict(task.splits)
    for name in ("train", "validation"):
        splits[name] = splits[name].subset(_draw(splits[name].labels, share, seed))
    return dataclasses.replace(task, splits=splits)


def _draw(labels: Ids, share: float, seed: int) -> Ids:
    """Draw the indices of a share of each class; a smaller share is a subset of a larger one."""
    import numpy as np

    rng = np.random.default_rng(seed)
    drawn = []
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        drawn.append(members[: math.ceil(share * len(members))])
    return np.sort(np.concatenate(drawn))


def _accuracies(
    settings: Settings, part: Task, seed: int, progress: bool | None
) -> dict[str, float]:
    """Return the test accuracy of each method."""
    from downstream.baselines.linear import glove_mean, texts_of, tf_idf
    from downstream.training.experiment import run

    alone = with_section(settings.without_vectors(), "mix", kinds=settings.mix.kinds[:1])
    alone = with_section(alone, "train", seed=seed, num_seeds=1)
    (outcome,) = run(alone, part, Path(settings.model), progress).outcomes
    data = texts_of(part)
    result = {
        "bilm": outcome.scores["test"].accuracy,
        "tfidf": tf_idf(data, seed % 2**32).scores["test"].accuracy,
    }
    if settings.head.vectors is not None:
        result["glove"] = glove_mean(data, settings.head.vectors).scores["test"].accuracy
    return result


def shares_table(comparison: ShareComparison) -> str:
    """Return a Markdown table with a row per share and a column per method."""
    rows = [["share", "texts", *(NAMES[method] for method in comparison.methods)]]
    for figures in comparison.shares:
        cells = [figures.accuracies[method].cell() for method in comparison.methods]
        rows.append([f"{figures.share:.3g}", f"{figures.num_texts:,}", *cells])
    return markdown_table(rows)


def shares_page(comparison: ShareComparison) -> Page:
    """Return the page of a comparison."""
    settings = comparison.settings
    return Page(
        figures={
            "settings": settings.model_dump(mode="json"),
            "shares": [figures.as_json() for figures in comparison.shares],
        },
        paragraphs=[
            "# Accuracy by number of training texts",
            f"Test accuracy in percent ({comparison.num_test_texts:,} texts), mean and standard "
            f"deviation over {settings.train.num_seeds} seeds.",
            shares_table(comparison),
            "![accuracy by number of training texts](sample_efficiency.png)",
        ],
        pictures={"sample_efficiency.png": plot_shares(comparison)},
    )


def plot_shares(comparison: ShareComparison) -> Any:
    """Draw accuracy by the number of training texts, with a band of one standard deviation."""
    figure, (axis,) = new_figure(1, 1, width=6.2, height=4.2)
    counts = [figures.num_texts for figures in comparison.shares]
    for method in comparison.methods:
        accuracies = [figures.accuracies[method] for figures in comparison.shares]
        color = f"C{list(NAMES).index(method)}"
        means = [100 * accuracy.mean for accuracy in accuracies]
        low = [100 * (accuracy.mean - accuracy.std) for accuracy in accuracies]
        high = [100 * (accuracy.mean + accuracy.std) for accuracy in accuracies]
        axis.plot(counts, means, "o-", color=color, label=NAMES[method])
        axis.fill_between(counts, low, high, color=color, alpha=0.18, linewidth=0)
    axis.set_xscale("log")
    labels = [f"{f.num_texts:,}\n{100 * f.share:.3g}%" for f in comparison.shares]
    axis.set_xticks(counts, labels)
    axis.minorticks_off()
    axis.set_xlabel("training texts")
    axis.set_ylabel("test accuracy (%)")
    axis.grid(alpha=0.3)
    axis.legend()
    return figure


if __name__ == "__main__":
    run_command(main)
