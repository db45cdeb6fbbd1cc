"""What the penalty on the mix does: `python -m downstream.analyses.penalty --model DIR ...`.

Takes the flags of `python -m downstream.classify`, and trains its head with the trainable mix once
per strength and seed: accuracy, and the weights that the layers end with. A strong penalty holds
the mix at the plain average, a weak one lets the task choose.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bilm.errors import ConfigError, run_command
from downstream.analyses.shared import accuracy_cells, figures_of, layer_name, parse, with_section
from downstream.settings.sections import Settings

FORMAT = "bilm-penalty"
PENALTIES = (1.0, 0.1, 0.01, 0.001, 0.0001)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    settings, arguments = parse("penalty", __doc__, argv, _add_flags)
    sys.stdout.write(compare_penalties(settings, arguments.penalties, arguments.progress))
    return 0


def _add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--penalties",
        type=_numbers,
        default=PENALTIES,
        metavar="LAMBDA[,LAMBDA]",
        help=f"strengths to try (default: {','.join(f'{x:g}' for x in PENALTIES)})",
    )


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(number) for number in text.split(","))


def compare_penalties(
    settings: Settings, penalties: Sequence[float], progress: bool | None = None
) -> str:
    """Train all heads, write the page, and return its table."""
    from downstream.reports.pages import check_free, markdown_table, write_page
    from downstream.tasks.classification import read_task
    from downstream.training.experiment import run

    if not penalties or not all(0 < penalty < float("inf") for penalty in penalties):
        raise ConfigError(f"--penalties has {list(penalties)}; each must be above 0 and finite")
    output = Path(settings.output)
    check_free(output, FORMAT, settings.overwrite)
    task = read_task(settings)
    figures = []
    for penalty in sorted(set(penalties), reverse=True):
        changed = with_section(settings, "mix", kinds=("trainable",), penalty=penalty)
        outcomes = run(changed, task, Path(settings.model), progress).outcomes
        figures.append({"penalty": penalty, **figures_of(outcomes)})
    rows = [["penalty", "validation", "test", "shares of the layers", "gamma"]]
    for of_one in figures:
        accuracies = accuracy_cells(of_one)
        shares = " ".join(f"{share:.3f}" for share in of_one["shares"])
        rows.append([f"{of_one['penalty']:g}", *accuracies, shares, f"{of_one['gamma']:.2f}"])
    table = markdown_table(rows)
    page = [
        "# The penalty on the mix",
        f"Accuracy in per cent of a `{settings.head.kind}` head with the trainable mix, mean and "
        f"standard deviation over {settings.train.num_seeds} seeds; the share of each layer.",
        table,
        "![accuracy and shares by penalty](penalty.png)",
    ]
    tree = {"settings": settings.model_dump(mode="json"), "penalties": figures}
    pictures = {"penalty.png": plot_penalties(figures)}
    write_page(output, FORMAT, tree, page, pictures, settings.overwrite)
    return f"{table}\n\npicture: {output / 'penalty.png'}\n"


def plot_penalties(figures: Sequence[dict[str, Any]]) -> Any:
    """Accuracy on the left, the layers' shares on the right, both by penalty."""
    from downstream.reports.pages import new_figure

    figure, (left, right) = new_figure(1, 2, width=4.8, height=3.6)
    penalties = [of_one["penalty"] for of_one in figures]
    for split, style in (("validation", "--"), ("test", "-")):
        means = [100 * of_one[split]["mean"] for of_one in figures]
        spreads = [100 * of_one[split]["std"] for of_one in figures]
        left.errorbar(penalties, means, spreads, fmt="o" + style, capsize=3, label=split)
    left.set_ylabel("accuracy (%)")
    num_layers = len(figures[0]["shares"])
    for layer in range(num_layers):
        shares = [of_one["shares"][layer] for of_one in figures]
        spreads = [of_one["shares_std"][layer] for of_one in figures]
        label = layer_name(layer)
        right.errorbar(penalties, shares, spreads, fmt="o-", capsize=3, label=label)
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
