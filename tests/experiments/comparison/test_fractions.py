from __future__ import annotations

from collections import Counter

import pytest

from experiments.comparison.fractions import chosen_share, strata_of

STRATA = ["a"] * 700 + ["b"] * 200 + ["c"] * 100


def test_shares_are_stratified() -> None:
    counts = Counter(STRATA[i] for i in chosen_share(STRATA, 0.1, seed=0))
    assert counts == {"a": 70, "b": 20, "c": 10}


def test_smaller_shares_are_subsets() -> None:
    shares = [set(chosen_share(STRATA, share, seed=3)) for share in (0.01, 0.1, 1.0)]
    assert shares[0] < shares[1] < shares[2]
    assert len(shares[2]) == len(STRATA)


def test_every_stratum_is_present() -> None:
    assert {STRATA[i] for i in chosen_share(STRATA, 0.001, seed=0)} == {"a", "b", "c"}


def test_seed_changes_the_choice() -> None:
    assert chosen_share(STRATA, 0.1, seed=0) == chosen_share(STRATA, 0.1, seed=0)
    assert chosen_share(STRATA, 0.1, seed=0) != chosen_share(STRATA, 0.1, seed=1)


def test_stratum_of_a_sentence_is_its_rarest_label() -> None:
    assert strata_of([("O", "B-PER"), ("O",), ("O", "B-PER", "B-LOC")]) == ["B-PER", "O", "B-LOC"]


@pytest.mark.parametrize("share", [0.0, 1.1])
def test_rejects_invalid_share(share: float) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        chosen_share(STRATA, share, seed=0)
