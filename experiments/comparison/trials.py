"""Short trials of equal time, and the choice of the settings of each system.

A trial changes one setting of the first one. A last trial combines the best value of each setting
that improved. The trial with the highest mean validation score decides: SST-5, NER and parts of
speech, with a tenth of the labels and the heads of the comparison.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

TRIAL_TASKS = ("sst5", "ner", "pos")

TRIAL_SHARE = 0.1

BASE = "base"


@dataclass(frozen=True)
class Trial:
    """The flags of a trial that differ from the first one; `setting` is what it changes."""

    name: str
    setting: str = ""
    flags: tuple[str, ...] = ()


def _size(dim: int, layers: int) -> tuple[str, ...]:
    return ("--hidden-dim", str(dim), "--num-layers", str(layers))


# The settings of the biLM were chosen by the trials of experiments/english_trials.py.
TRIALS: dict[str, tuple[Trial, ...]] = {
    "bilm": (),
    "masked_lm": (
        Trial(BASE),  # 256 x 6, 32 rows, learning rate 0.001, dropout 0.1
        Trial("320x4", "size", _size(320, 4)),
        Trial("rate_0.002", "rate", ("--learning-rate", "0.002")),
        Trial("16_rows", "rows", ("--rows", "16")),
        Trial("8_rows", "rows", ("--rows", "8")),
        Trial("no_dropout", "dropout", ("--dropout", "0")),
    ),
    "word2vec": (Trial(BASE), Trial("300", "dim", ("--dim", "300"))),  # the base has 100
    "fasttext": (Trial(BASE), Trial("300", "dim", ("--dim", "300"))),
    "char_lms": (Trial(BASE),),  # 512 units, SGD with 20
}

COMBINED = "combined"


def mean_score(scores: Mapping[str, float]) -> float:
    """Return the score of a trial: the mean over tasks."""
    return statistics.fmean(scores[task] for task in TRIAL_TASKS)


def combined_trial(trials: Sequence[Trial], scores: Mapping[str, float]) -> Trial | None:
    """Return the combination of the best values of all settings, or None if it is not new.

    `scores` are the mean scores by name of the trial. A value counts only if it is better than the
    first trial.
    """
    base = scores[trials[0].name]
    best: dict[str, Trial] = {}
    for trial in trials[1:]:
        if scores[trial.name] <= base:
            continue
        if trial.setting not in best or scores[trial.name] > scores[best[trial.setting].name]:
            best[trial.setting] = trial
    if len(best) < 2:
        return None
    return Trial(COMBINED, "all", tuple(flag for t in best.values() for flag in t.flags))


def best_trial(trials: Sequence[Trial], scores: Mapping[str, float]) -> Trial:
    """Return the trial with the highest score; the first one of equal scores."""
    return max(trials, key=lambda trial: scores[trial.name])
