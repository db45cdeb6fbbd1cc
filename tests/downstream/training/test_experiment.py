"""The experiment that all tasks share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from downstream.tag import main
from downstream.training import experiment
from tests.downstream.tag_task import make_tag_place, tag_flags


def test_trains_on_a_share_of_the_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, fit = list[tuple[int, int]](), experiment.fit

    def counted(model: Any, train: Any, validation: Any, *more: Any) -> Any:
        sizes.append((len(train.source), len(validation.source)))
        return fit(model, train, validation, *more)

    monkeypatch.setattr(experiment, "fit", counted)
    place = make_tag_place(tmp_path)
    more = ["--mix=none", "--epochs=1", "--train-share=0.1", f"--vectors={place / 'vectors.txt'}"]
    assert main(tag_flags(place, "share", *more)) == 0
    assert sizes == [(12, 40)]
