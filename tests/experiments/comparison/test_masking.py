from __future__ import annotations

import numpy as np

from experiments.comparison.masking import masked

SIZE, SPECIALS, MASK = 1000, 5, 4


def example() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    pieces = np.random.default_rng(0).integers(SPECIALS, SIZE, (400, 128))
    pieces[:, 0] = 2
    inputs, is_predicted = masked(pieces, np.random.default_rng(1), SIZE, SPECIALS, MASK)
    return pieces, inputs, is_predicted


def test_proportions() -> None:
    pieces, inputs, is_predicted = example()
    assert abs(is_predicted[:, 1:].mean() - 0.15) < 0.005
    became_mask = (inputs == MASK)[is_predicted].mean()
    unchanged = (inputs == pieces)[is_predicted].mean()
    assert abs(became_mask - 0.8) < 0.015
    assert abs(unchanged - 0.1) < 0.015


def test_other_pieces_and_specials_are_unchanged() -> None:
    pieces, inputs, is_predicted = example()
    assert (inputs == pieces)[~is_predicted].all()
    assert not is_predicted[:, 0].any()
    drawn = inputs[is_predicted & (inputs != MASK)]
    assert drawn.min() >= SPECIALS
    assert drawn.max() < SIZE


def test_masks_depend_only_on_the_generator() -> None:
    assert all((a == b).all() for a, b in zip(example(), example(), strict=True))
