from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bilm.errors import ConfigError
from downstream.analyses.penalty import main
from tests.downstream.analysis_results import analysis_results
from tests.downstream.topic_task import head_flags, make_place


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_place(tmp_path_factory.mktemp("penalty"))


def test_strong_penalty_keeps_the_average(place: Path) -> None:
    more = ["--penalties", "0.0001,10", "--epochs", "25", "--mix-learning-rate", "0.1"]
    main(head_flags(place, "penalty", *more))
    strong, weak = analysis_results(place / "penalty", "penalty.png")["penalties"]
    assert (strong["penalty"], weak["penalty"]) == (10, 0.0001)
    assert len(weak["seeds"]) == 3  # by default
    distances = [np.abs(np.array(one["shares"]) - 1 / 3).max() for one in (strong, weak)]
    assert distances[0] < 0.5 * distances[1]


def test_rejects_penalty_of_zero(place: Path) -> None:
    with pytest.raises(ConfigError, match="each must be above 0 and finite"):
        main(head_flags(place, "mistake", "--penalties", "0"))
