from __future__ import annotations

import torch

from downstream.heads.layers import Dropout, masked_max, masked_mean, reversed_places, take_places


def test_dropout_share_and_scale() -> None:
    torch.manual_seed(0)
    dropped = Dropout(0.25)(torch.ones(200, 10, 20))
    assert set(dropped.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert abs((dropped == 0).float().mean().item() - 0.25) < 0.01
    assert (dropped[:, :1] != dropped).any()


def test_dropout_per_text_is_the_same_for_all_words() -> None:
    torch.manual_seed(0)
    dropped = Dropout(0.5, per_text=True)(torch.ones(8, 10, 20))
    assert (dropped == dropped[:, :1]).all()
    assert (dropped[0] != dropped[1]).any()


def test_dropout_is_off_when_not_training() -> None:
    values = torch.randn(2, 3, 4)
    assert Dropout(0.5).eval()(values) is values
    assert Dropout(0.0)(values) is values


def test_reversal_leaves_padding_in_place() -> None:
    mask = torch.tensor([[True, True, True, False], [True, False, False, False]])
    places = reversed_places(mask)
    assert places.tolist() == [[2, 1, 0, 3], [0, 1, 2, 3]]
    words = torch.arange(8.0).reshape(2, 4, 1)
    assert take_places(words, places).flatten().tolist() == [2, 1, 0, 3, 4, 5, 6, 7]


def test_masked_pooling_ignores_padding() -> None:
    words = torch.tensor([[[-1.0, -2.0], [-3.0, -1.0], [9.0, 9.0]]])
    mask = torch.tensor([[True, True, False]])
    assert masked_max(words, mask).tolist() == [[-1.0, -1.0]]
    assert masked_mean(words, mask).tolist() == [[-2.0, -1.5]]
