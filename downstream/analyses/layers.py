"""Compare all layers with single layers: `python -m downstream.analyses.layers --model DIR ...`.

Accepts the flags of `python -m downstream.classify`. Trains a head on the trainable mix, on the
plain average, and on each layer alone, with several seeds each.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bilm.errors import run_command
from downstream.analyses.shared import (
    Accuracy,
    HeadFigures,
    analysis_settings,
    head_figures,
    with_section,
)
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

FORMAT = "bilm-layers"


@dataclass(frozen=True)
class LayerComparison:
    """The results for each choice of layers, by mix: `trainable`, `average`, `layer:2`, ..."""

    settings: Settings
    by_mix: Mapping[str, HeadFigures]

    def names(self) -> dict[str, str]:
        """Return the name of each mix in tables and plots."""
        top = len(self.by_mix) - 3  # by_mix also contains two mixes of all layers
        names = {"trainable": "all, trained mix", "average": "all, plain average"}
        for layer in range(top + 1):
            names[f"layer:{layer}"] = layer_name(layer) + (" (top)" if layer == top else "")
        return names


def main(argv: Sequence[str] | None = None) -> int:
    """Compare the layers and write the page."""
    arguments = parse(__doc__, argv)
    settings = analysis_settings(read_settings(arguments, Settings))
    output = Path(settings.output)
    check_free(output, FORMAT, settings.overwrite)
    set_up()
    comparison = compare_layers(settings, arguments.progress)
    write_page(output, FORMAT, layers_page(comparison), settings.overwrite)
    sys.stdout.write(f"{layers_table(comparison)}\n\nplot: {output / 'layers.png'}\n")
    return 0


def compare_layers(settings: Settings, progress: bool | None = None) -> LayerComparison:
    """Train the head on all layers and on each layer alone."""
    from bilm.pretrained.model_directory import PretrainedBiLm
    from downstream.tasks.classification import read_task
    from downstream.training.experiment import run

    num_layers = PretrainedBiLm.open(Path(settings.model)).model.config.lstm.num_layers + 1
    kinds = ("trainable", "average", *(f"layer:{i}" for i in reversed(range(num_layers))))
    settings = with_section(settings, "mix", kinds=kinds)
    results = run(settings, read_task(settings), Path(settings.model), progress)
    by_mix = {kind: head_figures(outcomes) for kind, outcomes in results.by_mix().items()}
    return LayerComparison(settings, by_mix)


def layers_table(comparison: LayerComparison) -> str:
    """Return a Markdown table with a row per choice of layers."""
    names = comparison.names()
    rows = [["layers", "validation", "test", "shares of the layers"]]
    for kind, figures in comparison.by_mix.items():
        shares = " ".join(f"{share:.2f}" for share in figures.shares)
        rows.append([names[kind], figures.validation.cell(), figures.test.cell(), shares])
    return markdown_table(rows)


def layers_page(comparison: LayerComparison) -> Page:
    """Return the page of a comparison."""
    settings, names = comparison.settings, comparison.names()
    by_name = {names[kind]: figures.test for kind, figures in comparison.by_mix.items()}
    return Page(
        figures={
            "settings": settings.model_dump(mode="json"),
            "layers": {kind: asdict(figures) for kind, figures in comparison.by_mix.items()},
        },
        paragraphs=[
            "# All layers or one layer",
            f"Accuracy in percent of a `{settings.head.kind}` head: mean and standard deviation "
            f"over {settings.train.num_seeds} seeds.",
            layers_table(comparison),
            "![accuracy by choice of layers](layers.png)",
        ],
        pictures={"layers.png": plot_layers(by_name)},
    )


def plot_layers(accuracies: Mapping[str, Accuracy]) -> Any:
    """Draw a row per choice of layers: a dot per seed and a bar at their mean."""
    figure, (axis,) = new_figure(1, 1, width=6.5, height=0.55 * len(accuracies) + 1.3)
    places = range(len(accuracies))
    for place, (name, accuracy) in zip(places, accuracies.items(), strict=True):
        color = "C0" if "all" in name else "C1"
        values = [100 * value for value in accuracy.values]
        axis.plot(values, [place] * len(values), "o", color=color, alpha=0.45, markersize=5)
        mean = 100 * accuracy.mean
        axis.plot([mean, mean], [place - 0.3, place + 0.3], color=color, linewidth=3)
        axis.annotate(
            f"{mean:.1f}", (max(values), place), (8, 0), textcoords="offset points", va="center"
        )
    axis.set_yticks(places, list(accuracies))
    axis.invert_yaxis()
    axis.margins(x=0.12)
    axis.set_xlabel("test accuracy (%): one dot per seed, bar at the mean")
    axis.grid(axis="x", alpha=0.3)
    return figure


if __name__ == "__main__":
    run_command(main)
