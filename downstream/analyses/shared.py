"""What the analyses of heads share: the flags of `downstream.classify`, and figures over seeds."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from downstream.settings import flags as commands
from downstream.settings.flags import read_settings
from downstream.settings.sections import Settings

if TYPE_CHECKING:
    from downstream.training.experiment import Outcome


DEFAULT_SEEDS = 3


def parse(
    name: str,
    description: str | None,
    argv: Sequence[str] | None,
    add_own: Callable[[argparse.ArgumentParser], object] | None = None,
) -> tuple[Settings, argparse.Namespace]:
    """Settings as `downstream.classify` has them, with three seeds unless told otherwise."""
    arguments = commands.parse(f"analyses.{name}", description, argv, add_own)
    settings = read_settings(arguments, Settings)
    settings.reject_finetune()
    if "num_seeds" not in settings.train.model_fields_set:
        settings = with_section(settings, "train", num_seeds=DEFAULT_SEEDS)
    commands.set_up()
    return settings, arguments


def with_section(settings: Settings, section: str, **changes: Any) -> Settings:
    """The settings with some values of one section changed."""
    changed = getattr(settings, section).model_copy(update=changes)
    return settings.model_copy(update={section: changed})


def figures_of(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Mean and spread over seeds of what matters, for a JSON file."""
    from downstream.training.experiment import spread_of

    result: dict[str, Any] = {"seeds": [outcome.seed for outcome in outcomes]}
    for split in ("validation", "test"):
        mean, std = spread_of(list(outcomes), split, "accuracy")
        values = [outcome.scores[split].accuracy for outcome in outcomes]
        result[split] = {"mean": mean, "std": std, "values": values}
    place = next((p for p in ("input", "output") if p in outcomes[0].shares), None)
    shares = [outcome.shares[place] for outcome in outcomes] if place else []
    gammas = [outcome.gammas[place] for outcome in outcomes] if place else []
    result["shares"] = _column_means(shares)
    result["shares_std"] = _column_stds(shares)
    result["gamma"] = sum(gammas) / len(gammas) if gammas else None
    return result


def accuracy_cells(figures: dict[str, Any]) -> list[str]:
    """Validation and test accuracy with their spread, for a table."""
    from downstream.reports.pages import percent

    splits = [figures[split] for split in ("validation", "test")]
    return [percent(split["mean"], split["std"]) for split in splits]


def _column_means(rows: Sequence[Sequence[float]]) -> list[float]:
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def _column_stds(rows: Sequence[Sequence[float]]) -> list[float]:
    from downstream.tasks.scores import mean_and_spread

    return [mean_and_spread(column)[1] for column in zip(*rows, strict=True)]


def layer_name(layer: int) -> str:
    """How a layer is called in pictures and pages."""
    return "layer 0 (words alone)" if layer == 0 else f"layer {layer}"
