"""Settings and results shared by the analyses of heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from downstream.reports.pages import percent
from downstream.settings.sections import Settings
from downstream.tasks.scores import Scores, mean_and_spread

if TYPE_CHECKING:
    from downstream.training.experiment import Outcome

DEFAULT_SEEDS = 3


@dataclass(frozen=True)
class Accuracy:
    """Accuracies of several seeds, with their mean and sample standard deviation."""

    mean: float
    std: float
    values: list[float]

    @classmethod
    def of(cls, values: Sequence[float]) -> Accuracy:
        """Summarize the accuracies of several seeds."""
        mean, std = mean_and_spread(values)
        return cls(mean, std, list(values))

    def cell(self) -> str:
        """Return the mean and standard deviation in percent, for a table."""
        return percent(self.mean, self.std)


@dataclass(frozen=True)
class HeadFigures:
    """The results of heads that differ only in their seed."""

    seeds: list[int]
    validation: Accuracy
    test: Accuracy
    shares: list[float]  # of each layer, averaged over seeds
    shares_std: list[float]
    gamma: float | None


def analysis_settings(settings: Settings) -> Settings:
    """Return the settings of an analysis of heads: three seeds unless a number is given.

    Raises:
        ConfigError: if fine-tuning is enabled.
    """
    settings.reject_finetune()
    if "num_seeds" in settings.train.model_fields_set:
        return settings
    return with_section(settings, "train", num_seeds=DEFAULT_SEEDS)


def with_section(settings: Settings, section: str, **changes: Any) -> Settings:
    """Return the settings with some values of one section changed."""
    changed = getattr(settings, section).model_copy(update=changes)
    return settings.model_copy(update={section: changed})


def head_figures(outcomes: Sequence[Outcome[Scores]]) -> HeadFigures:
    """Summarize heads that differ only in their seed.

    The shares and gamma are those of the mix at the input, or at the output if there is none.
    """
    validation, test = (
        Accuracy.of([outcome.scores[split].accuracy for outcome in outcomes])
        for split in ("validation", "test")
    )
    place = next((p for p in ("input", "output") if p in outcomes[0].shares), None)
    shares = [outcome.shares[place] for outcome in outcomes] if place else []
    gammas = [outcome.gammas[place] for outcome in outcomes] if place else []
    by_layer = list(zip(*shares, strict=True))
    return HeadFigures(
        seeds=[outcome.seed for outcome in outcomes],
        validation=validation,
        test=test,
        shares=[sum(column) / len(shares) for column in by_layer],
        shares_std=[mean_and_spread(column)[1] for column in by_layer],
        gamma=sum(gammas) / len(gammas) if gammas else None,
    )
