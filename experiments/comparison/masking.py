"""Masking as in BERT: 15% are predicted; of these, 80% become `[MASK]`, 10% a random piece."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

MASKED_SHARE = 0.15

MASK_SHARE, RANDOM_SHARE = 0.8, 0.1  # of the masked pieces; the others are unchanged

Ids = npt.NDArray[np.int64]

Mask = npt.NDArray[np.bool_]


def masked(
    pieces: Ids, generator: np.random.Generator, size: int, num_specials: int, mask_id: int
) -> tuple[Ids, Mask]:
    """Return the masked input, and which pieces are predicted.

    Special pieces, whose ids are below `num_specials`, are never masked or drawn. `size` is the
    number of pieces of the vocabulary.
    """
    is_predicted: Mask = (generator.random(pieces.shape) < MASKED_SHARE) & (pieces >= num_specials)
    kind = generator.random(pieces.shape)
    drawn = generator.integers(num_specials, size, pieces.shape)
    replaced = np.where(kind < MASK_SHARE, mask_id, pieces)
    is_random = (kind >= MASK_SHARE) & (kind < MASK_SHARE + RANDOM_SHARE)
    replaced = np.where(is_random, drawn, replaced)
    inputs: Ids = np.where(is_predicted, replaced, pieces)
    return inputs, is_predicted
