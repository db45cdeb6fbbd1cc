"""Choose a share of labelled examples: stratified, and nested for the same seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

SHARES = (0.01, 0.1, 1.0)


def strata_of(labels: Sequence[Sequence[str]]) -> list[str]:
    """Return the stratum of each example: the rarest of its labels.

    A text has one label, which is its stratum. Among sentences with a label per word, this keeps
    the proportion of sentences with rare labels.
    """
    counts = Counter(label for example in labels for label in example)
    return [min(example, key=lambda label: (counts[label], label)) for example in labels]


def chosen_share(strata: Sequence[str], share: float, seed: int) -> list[int]:
    """Return the sorted places of the share of each stratum, at least one example of each.

    The choice is random and depends on the seed. For the same seed, a smaller share is a subset of
    a larger one.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share is {share}; it must be above 0 and at most 1")
    places: dict[str, list[int]] = {}
    for place, stratum in enumerate(strata):
        places.setdefault(stratum, []).append(place)
    chosen: list[int] = []
    for stratum in sorted(places):
        order = np.random.default_rng(seed).permutation(places[stratum]).tolist()
        chosen += order[: max(1, round(share * len(order)))]
    return sorted(chosen)
