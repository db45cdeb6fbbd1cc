from __future__ import annotations

import pytest

from downstream.reports.tag_analysis import (
    MISSED,
    SPURIOUS,
    Compared,
    Pair,
    Share,
    SpanAnalysis,
    analyze_spans,
    analyze_words,
    compared_pairs,
    span_key,
    span_section,
    type_table,
    word_section,
)
from downstream.tasks.scores import ClassScores
from downstream.texts.tag_sequences import Span

WORDS = tuple("abcdefghijkl")


def analyze(truth: set[Span], predicted: set[Span], *known: tuple[str, ...]) -> SpanAnalysis:
    return analyze_spans([Compared(WORDS, truth, predicted)], known)


@pytest.mark.parametrize(
    ("truth", "predicted", "kind"),
    [
        (Span("PER", 1, 3), Span("PER", 1, 3), ""),
        (Span("PER", 1, 3), Span("LOC", 1, 3), "wrong_type"),
        (Span("PER", 1, 3), Span("PER", 2, 4), "wrong_boundaries"),
        (Span("PER", 1, 3), Span("LOC", 2, 4), "wrong_type_and_boundaries"),
        (Span("A", 1, 3, ((5, 6),)), Span("A", 1, 3), "wrong_boundaries"),
        (Span("A", 1, 3, ((5, 6),)), Span("B", 1, 3, ((5, 6),)), "wrong_type"),
    ],
)
def test_kinds_of_errors(truth: Span, predicted: Span, kind: str) -> None:
    assert list(compared_pairs({truth}, {predicted})) == [Pair(truth, predicted)]
    assert Pair(truth, predicted).error() == kind
    kinds = analyze({truth}, {predicted}).kinds
    assert {name for name, count in kinds.items() if count} == ({kind} if kind else set())


def test_spans_that_do_not_overlap_are_missed_and_spurious() -> None:
    truth, predicted = Span("PER", 1, 3), Span("PER", 3, 4)
    assert list(compared_pairs({truth}, {predicted})) == [Pair(truth, None), Pair(None, predicted)]
    analysis = analyze({truth}, {predicted})
    assert analysis.kinds[MISSED] == analysis.kinds[SPURIOUS] == 1
    assert analysis.types == {("PER", MISSED): 1, (SPURIOUS, "PER"): 1}


def test_a_span_is_compared_with_at_most_one_other() -> None:
    long, first, second = Span("PER", 0, 6), Span("LOC", 0, 3), Span("PER", 4, 5)
    # The same type comes before the larger overlap.
    assert list(compared_pairs({long}, {first, second})) == [Pair(long, second), Pair(None, first)]
    # The same boundaries come before the same type.
    exact = Span("LOC", 0, 6)
    assert list(compared_pairs({long}, {exact})) == [Pair(long, exact)]
    # More common words come first.
    one, two = Span("PER", 0, 2), Span("PER", 2, 6)
    assert list(compared_pairs({long}, {one, two})) == [Pair(long, two), Pair(None, one)]


def test_recall_of_spans_in_training_needs_the_words_and_the_type() -> None:
    truth = {Span("PER", 0, 2), Span("PER", 3, 4), Span("LOC", 5, 6)}
    known = (("PER", "a", "b"), ("ORG", "d"), ("LOC", "f"))
    analysis = analyze(truth, {Span("PER", 0, 2), Span("PER", 3, 4)}, *known)
    assert analysis.seen == Share(1, 2)
    assert analysis.unseen == Share(1, 1)
    assert span_key(WORDS, Span("A", 0, 1, ((2, 4),))) == ("A", "a", "c", "d")


def test_scores_by_length_count_all_words_of_a_span() -> None:
    truth = {Span("A", 0, 1), Span("A", 2, 3), Span("B", 4, 5, ((6, 9),))}
    predicted = {Span("A", 0, 1), Span("B", 4, 5, ((6, 9),)), Span("A", 9, 11)}
    by_length = analyze(truth, predicted).by_length
    assert by_length == {
        "1 word": ClassScores(1.0, 0.5, pytest.approx(2 / 3), 2),
        "2": ClassScores(0.0, 0.0, 0.0, 0),
        "4 to 6": ClassScores(1.0, 1.0, 1.0, 1),
    }


def test_report_has_a_matrix_of_few_types() -> None:
    truth = {Span("PER", 0, 1), Span("LOC", 2, 4), Span("LOC", 6, 7)}
    analysis = analyze(truth, {Span("PER", 0, 1), Span("PER", 3, 4), Span("LOC", 8, 9)})
    assert type_table(analysis.types).splitlines() == [
        "| true type | LOC | PER | missed |",
        "|-----------|-----|-----|--------|",
        "| LOC       | 0   | 1   | 1      |",
        "| PER       | 0   | 1   | 0      |",
        "| spurious  | 1   | 0   | -      |",
    ]
    page = "\n".join(span_section(analysis))
    assert "| wrong type, wrong boundaries (overlap) | 1 " in page
    assert analysis.as_json()["errors"] == {
        "wrong_type": 0,
        "wrong_boundaries": 0,
        "wrong_type_and_boundaries": 1,
        MISSED: 1,
        SPURIOUS: 1,
    }


def test_report_lists_the_confusions_of_many_types() -> None:
    types = {(f"T{i}", f"T{i}"): 9 for i in range(20)} | {("T1", "T2"): 3, (SPURIOUS, "T1"): 4}
    assert type_table(types).splitlines() == [
        "| true type | predicted type | spans |",
        "|-----------|----------------|-------|",
        "| spurious  | T1             | 4     |",
        "| T1        | T2             | 3     |",
    ]


def test_words_in_training_and_others() -> None:
    tagged = [("a", "N", "N"), ("a", "N", "V"), ("b", "V", "V"), ("A", "N", "V")]
    scores = [ClassScores(0, 0, f1, 1) for f1 in (0.5, 1.0)]
    analysis = analyze_words(tagged, {"a"}, scores)
    assert (analysis.seen, analysis.unseen) == (Share(1, 2), Share(1, 2))
    assert analysis.macro_f1 == 0.75
    page = "\n".join(word_section(analysis))
    assert "Macro F1, the mean over labels: 75.00." in page
    assert "| not in training | 50.00    | 2     |" in page
    assert analyze_words(tagged, {"a", "b", "A"}, scores).unseen.as_json()["share"] == 0
