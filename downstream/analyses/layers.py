"""All layers against single ones: `python -m downstream.analyses.layers --model DIR --train ...`.

Takes the flags of `python -m downstream.classify`, and trains its head on the trainable mix, on the
plain average, and on each layer alone, the top one among them, with several seeds each.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bilm.errors import run_command
from downstream.analyses.shared import accuracy_cells, figures_of, layer_name, parse, with_section
from downstream.settings.sections import Settings

FORMAT = "bilm-layers"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    settings, arguments = parse("layers", __doc__, argv)
    sys.stdout.write(compare_layers(settings, arguments.progress))
    return 0


def compare_layers(settings: Settings, progress: bool | None = None) -> str:
    """Train all heads, write the page, and return its table."""
    from bilm.pretrained.model_directory import PretrainedBiLm
    from downstream.reports.pages import check_free, markdown_table, write_page
    from downstream.tasks.classification import read_task
    from downstream.training.experiment import run

    output = Path(settings.output)
    check_free(output, FORMAT, settings.overwrite)
    num_layers = PretrainedBiLm.open(Path(settings.model)).model.config.lstm.num_layers + 1
    kinds = ("trainable", "average", *(f"layer:{i}" for i in reversed(range(num_layers))))
    settings = with_section(settings, "mix", kinds=kinds)
    results = run(settings, read_task(settings), Path(settings.model), progress)
    figures = {kind: figures_of(outcomes) for kind, outcomes in results.by_mix().items()}
    names = _names(num_layers)
    rows = [["layers", "validation", "test", "shares of the layers"]]
    for kind, of_kind in figures.items():
        shares = " ".join(f"{share:.2f}" for share in of_kind["shares"])
        rows.append([names[kind], *accuracy_cells(of_kind), shares])
    table = markdown_table(rows)
    page = [
        "# Which layers",
        f"Accuracy in per cent of a `{settings.head.kind}` head, mean and standard deviation over "
        f"{settings.train.num_seeds} seeds.",
        table,
        "![accuracy by layers](layers.png)",
    ]
    tree = {"settings": settings.model_dump(mode="json"), "layers": figures}
    picture = plot_layers({names[kind]: figures[kind]["test"] for kind in kinds})
    write_page(output, FORMAT, tree, page, {"layers.png": picture}, settings.overwrite)
    return f"{table}\n\npicture: {output / 'layers.png'}\n"


def plot_layers(accuracies: dict[str, dict[str, Any]]) -> Any:
    """A row for each choice of layers: its seeds as dots, their mean as a bar."""
    from downstream.reports.pages import new_figure

    figure, (axis,) = new_figure(1, 1, width=6.5, height=0.55 * len(accuracies) + 1.3)
    places = range(len(accuracies))
    for place, (name, figures) in zip(places, accuracies.items(), strict=True):
        colour = "C0" if "all" in name else "C1"
        values = [100 * value for value in figures["values"]]
        axis.plot(values, [place] * len(values), "o", color=colour, alpha=0.45, markersize=5)
        mean = 100 * figures["mean"]
        axis.plot([mean, mean], [place - 0.3, place + 0.3], color=colour, linewidth=3)
        axis.annotate(
            f"{mean:.1f}", (max(values), place), (8, 0), textcoords="offset points", va="center"
        )
    axis.set_yticks(places, list(accuracies))
    axis.invert_yaxis()
    axis.margins(x=0.12)
    axis.set_xlabel("test accuracy (%); a dot is a seed, a bar their mean")
    axis.grid(axis="x", alpha=0.3)
    return figure


def _names(num_layers: int) -> dict[str, str]:
    names = {f"layer:{i}": layer_name(i) for i in range(num_layers)}
    names[f"layer:{num_layers - 1}"] += " (top)"
    return {"trainable": "all, trained mix", "average": "all, plain average", **names}


if __name__ == "__main__":
    run_command(main)
