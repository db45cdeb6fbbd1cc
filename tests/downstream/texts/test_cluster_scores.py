"""The scores, compared with definitions that are written out and tried by brute force."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from downstream.texts.cluster_scores import Prf, score_chains, score_clusters
from downstream.texts.clusters import Clusters, Mention

Sets = list[set[Mention]]


def clusters(*groups: str) -> Clusters:
    """Return clusters of mentions that are named by letters."""
    return tuple(tuple(Mention(ord(c), ord(c)) for c in sorted(group)) for group in groups)


def brute_muc(keys: Sets, responses: Sets) -> tuple[Fraction, Fraction]:
    """Return the sum of |K| - |partition of K by the responses|, and the sum of |K| - 1."""
    part = whole = 0
    for key in keys:
        pieces = [key & response for response in responses if key & response]
        alone = key - set().union(*responses) if responses else key
        part += len(key) - len(pieces) - len(alone)
        whole += len(key) - 1
    return Fraction(part), Fraction(whole)


def brute_b_cubed(keys: Sets, responses: Sets) -> tuple[Fraction, Fraction]:
    """Return the sum over mentions of |K(m) & R(m)| / |K(m)|, and the number of mentions."""
    part = Fraction(0)
    for key in keys:
        for mention in key:
            response = next((r for r in responses if mention in r), set())
            part += Fraction(len(key & response), len(key))
    return part, Fraction(sum(len(key) for key in keys))


def brute_ceaf(keys: Sets, responses: Sets, entity: bool) -> Fraction:
    """Return the best sum of similarities over all one-to-one alignments."""

    def similarity(key: set[Mention], response: set[Mention]) -> Fraction:
        common = len(key & response)
        return Fraction(2 * common, len(key) + len(response)) if entity else Fraction(common)

    small, large = sorted((keys, responses), key=len)
    return max(
        sum((similarity(a, b) for a, b in zip(small, chosen, strict=True)), Fraction(0))
        for chosen in itertools.permutations(large, len(small))
    )


def ratio(part: Fraction, whole: Fraction) -> float:
    return float(part / whole) if whole else 0.0


def prf(precision: float, recall: float) -> Prf:
    both = precision + recall
    return Prf(precision, recall, 2 * precision * recall / both if both else 0.0)


def brute_scores(documents: list[tuple[Clusters, Clusters]]) -> dict[str, Prf]:
    """Return the scores by the definitions; numerators and denominators are added up."""
    sums: dict[tuple[str, str], list[Fraction]] = {}

    def add(name: str, side: str, part: Fraction, whole: Fraction) -> None:
        entry = sums.setdefault((name, side), [Fraction(0), Fraction(0)])
        entry[0] += part
        entry[1] += whole

    for gold, found in documents:
        keys, responses = [set(c) for c in gold], [set(c) for c in found]
        for side, one, other in (("r", keys, responses), ("p", responses, keys)):
            add("muc", side, *brute_muc(one, other))
            add("b_cubed", side, *brute_b_cubed(one, other))
            add("ceaf_e", side, brute_ceaf(keys, responses, True), Fraction(len(one)))
            size = Fraction(sum(map(len, one)))
            add("ceaf_m", side, brute_ceaf(keys, responses, False), size)
            common = set().union(*keys) & set().union(*responses)
            add("mentions", side, Fraction(len(common)), size)
    names = ("muc", "b_cubed", "ceaf_e", "ceaf_m", "mentions")
    return {name: prf(ratio(*sums[name, "p"]), ratio(*sums[name, "r"])) for name in names}


def check(documents: list[tuple[Clusters, Clusters]]) -> None:
    scores = score_clusters([gold for gold, _ in documents], [found for _, found in documents])
    expected = brute_scores(documents)
    for name, figure in expected.items():
        actual = getattr(scores, name)
        assert actual.precision == pytest.approx(figure.precision, abs=1e-12), name
        assert actual.recall == pytest.approx(figure.recall, abs=1e-12), name
        assert actual.f1 == pytest.approx(figure.f1, abs=1e-12), name
    mean = sum(expected[name].f1 for name in ("muc", "b_cubed", "ceaf_e")) / 3
    assert scores.conll == pytest.approx(mean, abs=1e-12)


def random_clusters(rng: np.random.Generator, num_mentions: int) -> Clusters:
    """Return a random partition of random mentions into at most five clusters."""
    groups: dict[int, list[Mention]] = {}
    for i in range(num_mentions):
        if rng.random() < 0.8:
            groups.setdefault(int(rng.integers(5)), []).append(Mention(i, i + int(rng.integers(2))))
    return tuple(tuple(group) for group in groups.values())


def test_random_documents_agree_with_the_definitions() -> None:
    rng = np.random.default_rng(0)
    for size in (1, 2, 4, 8, 12):
        for _ in range(15):
            count = int(rng.integers(1, 4))
            documents = [
                (random_clusters(rng, size), random_clusters(rng, size)) for _ in range(count)
            ]
            check(documents)


@pytest.mark.parametrize(
    ("key", "response"),
    [
        (["abc", "defg"], ["abc", "defg"]),
        (["abc", "defg"], []),
        ([], ["ab"]),
        (["abc"], ["xyz"]),
        (["a", "b", "cd"], ["ab", "c", "d"]),
        (["ab", "cd", "ef"], ["abcdef"]),
        (["abcdef"], ["a", "b", "c", "d", "e", "f"]),
    ],
)
def test_special_cases_agree_with_the_definitions(key: list[str], response: list[str]) -> None:
    check([(clusters(*key), clusters(*response))])


def test_example_of_the_reference_scorer() -> None:
    """The example of Pradhan et al. (2014): key {abc}, {defg}; response {ab}, {cd}, {fghi}."""
    scores = score_clusters([clusters("abc", "defg")], [clusters("ab", "cd", "fghi")])
    expected = {
        "muc": (Fraction(2, 5), Fraction(2, 5)),  # 0.40 and 0.40 in the paper
        "b_cubed": (Fraction(1, 2), Fraction(5, 12)),  # 0.50 and 0.42
        "ceaf_m": (Fraction(4, 8), Fraction(4, 7)),  # 0.50 and 0.57
        "ceaf_e": (Fraction(13, 30), Fraction(13, 20)),  # 0.43 and 0.65
    }
    for name, (precision, recall) in expected.items():
        figure = getattr(scores, name)
        assert figure.precision == pytest.approx(float(precision))
        assert figure.recall == pytest.approx(float(recall))
    assert scores.ceaf_e.f1 == pytest.approx(0.52)


def test_alignment_is_optimal_where_a_greedy_one_is_not() -> None:
    """Aligning the most similar clusters first, {abcde} with {abcfg}, finds 3 mentions, not 4."""
    key, response = clusters("abcde", "fg"), clusters("abcfg", "de")
    scores = score_clusters([key], [response])
    assert scores.ceaf_m.recall == scores.ceaf_m.precision == pytest.approx(4 / 7)
    check([(key, response)])


def test_singletons_are_removed_from_both_sides() -> None:
    key, response = clusters("ab", "c", "d"), clusters("ab", "c", "e")
    chains = score_chains([key], [response])
    assert chains.conll == chains.mentions.f1 == 1.0
    scores = score_clusters([key], [response])
    assert scores.muc.f1 == 1.0
    assert scores.b_cubed.f1 == pytest.approx(3 / 4)
    assert scores.ceaf_e.f1 == pytest.approx(2 / 3)


def test_counts_are_added_over_documents() -> None:
    large, small = clusters("abcdefgh"), clusters("ab")
    scores = score_clusters([large, small], [large, ()])
    assert scores.b_cubed.recall == pytest.approx(8 / 10)
    assert scores.muc.recall == pytest.approx(7 / 8)


def test_rejects_different_numbers_of_documents() -> None:
    with pytest.raises(ValueError, match="1 documents with true clusters and 0 with predicted"):
        score_clusters([()], [])
    with pytest.raises(ValueError, match="above 0"):
        score_clusters([], [])
