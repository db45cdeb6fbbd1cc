from __future__ import annotations

import numpy as np
import pytest

from downstream.analyses.shared import analysis_settings, head_figures
from downstream.settings.sections import DataSettings, Settings, TrainingSettings
from downstream.tasks.scores import score
from downstream.training.experiment import Outcome
from downstream.training.fit import History

LABELS = np.array([0, 1, 1, 0])


def outcome(seed: int, num_wrong: int, shares: dict[str, list[float]]) -> Outcome:
    predicted = LABELS.copy()
    predicted[:num_wrong] = 1 - predicted[:num_wrong]
    scores = {split: score(LABELS, predicted, ("a", "b")) for split in ("validation", "test")}
    gammas = {place: float(seed) for place in shares}
    return Outcome("trainable", seed, History(), scores, shares, gammas, seconds=1.0)


def test_summarizes_seeds() -> None:
    outcomes = [outcome(1, 0, {"input": [0.2, 0.8]}), outcome(2, 2, {"input": [0.4, 0.6]})]
    figures = head_figures(outcomes)
    assert figures.seeds == [1, 2]
    assert figures.test.values == [1.0, 0.5]
    assert figures.test.mean == pytest.approx(0.75)
    assert figures.test.cell() == "75.00 ± 35.36"
    assert figures.shares == pytest.approx([0.3, 0.7])
    assert figures.shares_std == pytest.approx([np.std([0.2, 0.4], ddof=1)] * 2)
    assert figures.gamma == 1.5


def test_heads_without_a_mix_have_no_shares() -> None:
    figures = head_figures([outcome(0, 1, {})])
    assert (figures.shares, figures.shares_std, figures.gamma) == ([], [], None)


def test_uses_three_seeds_by_default() -> None:
    data = DataSettings(train="train.csv", test="test.csv")
    settings = Settings(model="model", output="output", data=data)
    assert analysis_settings(settings).train.num_seeds == 3
    one = Settings(model="model", output="output", data=data, train=TrainingSettings(num_seeds=1))
    assert analysis_settings(one).train.num_seeds == 1
