"""Compare penalties on the mix: `python -m downstream.analyses.penalty --model DIR ...`.

Accepts the flags of `python -m downstream.classify`. Trains a head with the trainable mix once per
strength and seed, and reports accuracy and the learned layer weights. A strong penalty keeps the
mix at the plain average; with a weak penalty, the task determines the mix.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bilm.errors import ConfigError, run_command
from downstream.analyses.shared import HeadFigures, analysis_settings, head_figures, with_section
from downstream.reports.pages import (
    Page,
    check_free,
    layer_name,
    markdown_table,
    new_figure,
    write_page,
)
from downstream.settings.flags import parse, read_settings, set_up
from downstream.settings.sections import Settings

FORMAT = "bilm-penalty"

PENALTIES = (1.0, 0.1, 0.01, 0.001, 0.0001)


@dataclass(frozen=True)
class PenaltyComparison:
    """The results for each penalty, strongest first."""

    settings: Settings
    by_penalty: Mapping[float, HeadFigures]


def main(argv: Sequence[str] | None = None) -> int:
    """Compare the penalties and write the page."""
    arguments = parse(__doc__, argv, _add_flags)
    settings = analysis_settings(read_settings(arguments, Settings))
    output = Path(settings.output)
    check_free(output, FORMAT, settings.overwrite)
    set_up()
    comparison = compare_penalties(settings, arguments.penalties, arguments.progress)
    write_page(output, FORMAT, penalties_page(comparison), settings.overwrite)
    sys.stdout.write(f"{penalties_table(comparison)}\n\nplot: {output / 'penalty.png'}\n")
    return 0


def _add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--penalties",
        type=lambda text: tuple(float(number) for number in text.split(",")),
        default=PENALTIES,
        metavar="LAMBDA[,LAMBDA]",
        help=f"strengths to compare (default: {','.join(f'{x:g}' for x in PENALTIES)})",
    )


def compare_penalties(
    settings: Settings, penalties: Sequence[float], progress: bool | None = None
) -> PenaltyComparison:
    """Train the head with the trainable mix once per penalty and seed."""
    from downstream.tasks.classification import read_task
    from downstream.training.experiment import run

    if not penalties or not all(0 < penalty < float("inf") for penalty in penalties):
        raise ConfigError(f"--penalties is {list(penalties)}; each must be above 0 and finite")
    task = read_task(settings)
    by_penalty = {}
    for penalty in sorted(set(penalties), reverse=True):
        changed = with_section(settings, "mix", kinds=("trainable",), penalty=penalty)
        outcomes = run(changed, task, Path(settings.model), progress).outcomes
        by_penalty[penalty] = head_figures(outcomes)
    return PenaltyComparison(settings, by_penalty)


def penalties_table(comparison: PenaltyComparison) -> str:
    """Return a Markdown table with a row per penalty."""
    rows = [["penalty", "validation", "test", "shares of the layers", "gamma"]]
    for penalty, figures in comparison.by_penalty.items():
        accuracies = [figures.validation.cell(), figures.test.cell()]
        shares = " ".join(f"{share:.3f}" for share in figures.shares)
        rows.append([f"{penalty:g}", *accuracies, shares, f"{figures.gamma:.2f}"])
    return markdown_table(rows)


def penalties_page(comparison: PenaltyComparison) -> Page:
    """Return the page of a comparison."""
    settings = comparison.settings
    return Page(
        figures={
            "settings": settings.model_dump(mode="json"),
            "penalties": [
                {"penalty": penalty, **asdict(figures)}
                for penalty, figures in comparison.by_penalty.items()
            ],
        },
        paragraphs=[
            "# Penalty on the mix",
            f"Accuracy in percent of a `{settings.head.kind}` head with the trainable mix: mean "
            f"and standard deviation over {settings.train.num_seeds} seeds, and the share of each "
            "layer in the mix.",
            penalties_table(comparison),
            "![accuracy and shares by penalty](penalty.png)",
        ],
        pictures={"penalty.png": plot_penalties(comparison.by_penalty)},
    )


def plot_penalties(by_penalty: Mapping[float, HeadFigures]) -> Any:
    """Draw accuracy (left) and the share of each layer (right) by penalty."""
    figure, (left, right) = new_figure(1, 2, width=4.8, height=3.6)
    penalties, rows = list(by_penalty), list(by_penalty.values())
    for split, style, accuracies in (
        ("validation", "--", [figures.validation for figures in rows]),
        ("test", "-", [figures.test for figures in rows]),
    ):
        means = [100 * accuracy.mean for accuracy in accuracies]
        stds = [100 * accuracy.std for accuracy in accuracies]
        left.errorbar(penalties, means, stds, fmt="o" + style, capsize=3, label=split)
    left.set_ylabel("accuracy (%)")
    num_layers = len(rows[0].shares)
    for layer in range(num_layers):
        shares = [figures.shares[layer] for figures in rows]
        stds = [figures.shares_std[layer] for figures in rows]
        right.errorbar(penalties, shares, stds, fmt="o-", capsize=3, label=layer_name(layer))
    right.axhline(1 / num_layers, color="grey", linewidth=0.8, linestyle=":")
    right.set_ylabel("share in the mix")
    for axis in (left, right):
        axis.set_xscale("log")
        axis.invert_xaxis()
        axis.set_xlabel("penalty λ (weaker to the right)")
        axis.grid(alpha=0.3)
        axis.legend(fontsize="small")
    return figure


if __name__ == "__main__":
    run_command(main)
