from __future__ import annotations

from experiments.comparison.trials import TRIALS, Trial, best_trial, combined_trial

BASE, SMALL, LARGE, FAST = (
    Trial("base"),
    Trial("small", "size", ("--size", "1")),
    Trial("large", "size", ("--size", "3")),
    Trial("fast", "rate", ("--rate", "2")),
)


def test_combines_the_best_values() -> None:
    scores = {"base": 0.5, "small": 0.6, "large": 0.7, "fast": 0.55}
    combined = combined_trial((BASE, SMALL, LARGE, FAST), scores)
    assert combined is not None
    assert combined.flags == ("--size", "3", "--rate", "2")


def test_one_improvement_needs_no_combination() -> None:
    scores = {"base": 0.5, "small": 0.4, "large": 0.7, "fast": 0.5}
    assert combined_trial((BASE, SMALL, LARGE, FAST), scores) is None
    assert best_trial((BASE, SMALL, LARGE, FAST), scores) == LARGE


def test_trials_of_a_system_have_different_names() -> None:
    for trials in TRIALS.values():
        assert len({trial.name for trial in trials}) == len(trials)
        assert not any(trial.flags for trial in trials[:1])
