from __future__ import annotations

import random

import pytest

from downstream.tasks.tag_scores import Confusion, score_tags
from downstream.texts.tag_sequences import SpanRules

TAGS = ["O", "B-A", "I-A", "B-B", "I-B", "B-C", "I-C"]

Sequences = list[list[str]]


def reference_spans(tags: list[str]) -> set[tuple[str, int, int]]:
    """Return the spans by the rules of conlleval.pl: where a chunk starts, and where it ends."""
    spans, start = set(), 0
    previous, previous_type = "O", ""
    for i, tag in enumerate([*tags, "O"]):
        prefix, _, kind = tag.partition("-")
        ends = previous != "O" and (prefix in ("B", "O") or kind != previous_type)
        starts = prefix == "B" or (prefix == "I" and (previous == "O" or kind != previous_type))
        if ends:
            spans.add((previous_type, start, i))
        if starts:
            start = i
        previous, previous_type = prefix, kind
    return spans


def random_case(rng: random.Random) -> tuple[Sequences, Sequences]:
    truth = [[rng.choice(TAGS) for _ in range(rng.randint(1, 9))] for _ in range(rng.randint(1, 6))]
    predicted = [[rng.choice(TAGS) if rng.random() < 0.4 else t for t in row] for row in truth]
    return truth, predicted


def test_equals_the_rules_of_conlleval_on_random_cases() -> None:
    rng = random.Random(0)
    for _ in range(300):
        truth, predicted = random_case(rng)
        pairs = [
            (reference_spans(a), reference_spans(b)) for a, b in zip(truth, predicted, strict=True)
        ]
        correct = sum(len(a & b) for a, b in pairs)
        num_true, num_found = sum(len(a) for a, _ in pairs), sum(len(b) for _, b in pairs)
        scores = score_tags(truth, predicted, is_bio=True)
        assert scores.recall == pytest.approx(correct / num_true if num_true else 0.0)
        assert scores.precision == pytest.approx(correct / num_found if num_found else 0.0)
        total = num_true + num_found
        assert scores.f1 == scores.main == pytest.approx(2 * correct / total if total else 0.0)


def test_equals_seqeval_on_random_cases() -> None:
    metrics = pytest.importorskip("seqeval.metrics")
    rng = random.Random(1)
    for _ in range(200):
        truth, predicted = random_case(rng)
        scores = score_tags(truth, predicted, is_bio=True)
        if not scores.by_class:
            continue
        report = metrics.classification_report(truth, predicted, output_dict=True, zero_division=0)
        assert scores.f1 == pytest.approx(report["micro avg"]["f1-score"])
        assert scores.precision == pytest.approx(report["micro avg"]["precision"])
        assert scores.recall == pytest.approx(report["micro avg"]["recall"])
        assert scores.accuracy == pytest.approx(metrics.accuracy_score(truth, predicted))
        for name, row in scores.by_class.items():
            assert row.f1 == pytest.approx(report[name]["f1-score"])
            assert row.support == report[name]["support"]


def test_scores_of_a_hand_made_case() -> None:
    truth = [["B-A", "I-A", "O", "B-B"], ["B-A"]]
    predicted = [["B-A", "O", "O", "B-B"], ["B-B"]]
    scores = score_tags(truth, predicted, is_bio=True)
    assert (scores.precision, scores.recall) == (pytest.approx(1 / 3), pytest.approx(1 / 3))
    assert scores.accuracy == pytest.approx(3 / 5)
    assert scores.by_class["A"].f1 == 0.0
    assert (scores.by_class["B"].precision, scores.by_class["B"].recall) == (0.5, 1.0)
    assert scores.confusions == (Confusion("B-A", "B-B", 1), Confusion("I-A", "O", 1))


def test_plain_tags_are_scored_by_word() -> None:
    scores = score_tags([["N", "V", "N"]], [["N", "N", "N"]], is_bio=False)
    assert scores.main == scores.accuracy == scores.f1 == pytest.approx(2 / 3)
    assert scores.by_class["N"].recall == 1.0
    assert scores.by_class["V"].support == 1


def test_excluded_types_do_not_count() -> None:
    truth, predicted = [["B-V", "B-A"]], [["B-V", "O"]]
    assert score_tags(truth, predicted, is_bio=True).f1 == pytest.approx(2 / 3)
    scores = score_tags(truth, predicted, is_bio=True, rules=SpanRules(("V",)))
    assert scores.f1 == 0.0
    assert set(scores.by_class) == {"A"}


ROLES = SpanRules(("V",), joins_continuations=True)

ROLE_TAGS = ["O", *(f"{p}-{kind}" for kind in ("A", "C-A", "B", "C-B", "V", "C-V") for p in "BI")]


def reference_arguments(tags: list[str]) -> list[tuple[str, frozenset[tuple[int, int]]]]:
    """Return the arguments of a proposition by the rules of srl-eval.pl: type and all ranges."""
    arguments: list[tuple[str, set[tuple[int, int]]]] = []
    for kind, start, end in sorted(reference_spans(tags), key=lambda span: span[1]):
        is_continued = kind.startswith("C-")
        name = kind[2:] if is_continued else kind
        begun = [ranges for other, ranges in arguments if other == name]
        if is_continued and begun:
            begun[-1].add((start, end))
        else:
            arguments.append((name, {(start, end)}))
    return [(name, frozenset(ranges)) for name, ranges in arguments if name != "V"]


def test_roles_equal_the_rules_of_the_conll_evaluation_on_random_cases() -> None:
    rng = random.Random(2)
    num_joined = 0
    for _ in range(300):
        truth = [[rng.choice(ROLE_TAGS) for _ in range(rng.randint(1, 9))] for _ in range(4)]
        found = [[rng.choice(ROLE_TAGS) if rng.random() < 0.3 else t for t in r] for r in truth]
        gold, predicted = ([reference_arguments(row) for row in rows] for rows in (truth, found))
        correct = sum(len(set(a) & set(b)) for a, b in zip(gold, predicted, strict=True))
        num_true, num_found = (sum(map(len, side)) for side in (gold, predicted))
        num_joined += num_true - sum(len(reference_spans(row)) for row in truth)
        scores = score_tags(truth, found, is_bio=True, rules=ROLES)
        assert scores.recall == pytest.approx(correct / num_true if num_true else 0.0)
        assert scores.precision == pytest.approx(correct / num_found if num_found else 0.0)
        assert not any(name.startswith("C-") for name in scores.by_class)
    assert num_joined < -300


def test_an_argument_is_correct_only_with_all_of_its_ranges() -> None:
    truth = [["B-ARG1", "O", "B-V", "B-C-ARG1"]]
    for predicted, f1 in (
        (["B-ARG1", "O", "B-V", "O"], 0.0),
        (["B-ARG1", "O", "B-V", "B-C-ARG1"], 1.0),
        (["O", "O", "B-V", "B-C-ARG1"], 0.0),  # continues nothing: an argument of its own
    ):
        assert score_tags(truth, [predicted], is_bio=True, rules=ROLES).f1 == f1


def test_rejects_unequal_numbers() -> None:
    with pytest.raises(ValueError, match="1 true sequences and 0 predicted"):
        score_tags([["O"]], [], is_bio=True)
