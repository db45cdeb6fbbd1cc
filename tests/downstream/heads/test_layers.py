from __future__ import annotations

import torch

from downstream.heads.layers import Dropout


def test_share_and_scale() -> None:
    torch.manual_seed(0)
    dropped = Dropout(0.25)(torch.ones(200, 10, 20))
    assert set(dropped.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert abs((dropped == 0).float().mean().item() - 0.25) < 0.01
    assert (dropped[:, :1] != dropped).any()


def test_per_text_all_words_lose_the_same() -> None:
    torch.manual_seed(0)
    dropped = Dropout(0.5, per_text=True)(torch.ones(8, 10, 20))
    assert (dropped == dropped[:, :1]).all()
    assert (dropped[0] != dropped[1]).any()


def test_nothing_is_dropped_when_not_training() -> None:
    values = torch.randn(2, 3, 4)
    assert Dropout(0.5).eval()(values) is values
    assert Dropout(0.0)(values) is values
