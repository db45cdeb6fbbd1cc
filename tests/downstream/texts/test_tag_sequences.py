from __future__ import annotations

import pytest

from downstream.texts.tag_sequences import (
    Span,
    SpanRules,
    bio_from_iob1,
    bio_labels,
    find_bad_tag,
    joined_continuations,
    ranges_of,
    span_f1,
    spans_of,
)


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("O O", []),
        ("B-A I-A O B-B", [Span("A", 0, 2), Span("B", 3, 4)]),
        ("B-A B-A I-A", [Span("A", 0, 1), Span("A", 1, 3)]),
        ("I-A I-A", [Span("A", 0, 2)]),  # illegal in BIO; seqeval starts a span
        ("O I-A I-B", [Span("A", 1, 2), Span("B", 2, 3)]),
        ("B-A I-B", [Span("A", 0, 1), Span("B", 1, 2)]),
        ("B-ARG1-X I-ARG1-X", [Span("ARG1-X", 0, 2)]),
        ("", []),
    ],
)
def test_finds_spans(tags: str, spans: list[Span]) -> None:
    assert spans_of(tags.split()) == spans


@pytest.mark.parametrize(
    ("tags", "scheme", "place", "reason"),
    [
        ("B-A O I-A", "bio", 2, r"the tag 'I-A' follows 'O'; in BIO it must follow B-A or I-A"),
        ("I-A", "bio", 0, "starts the sentence"),
        ("B-A I-B", "bio", 1, "--scheme iob1"),
        ("O NOUN", "bio", 1, "is not O, B-TYPE or I-TYPE"),
        ("O B-", "iob1", 1, "is not O, B-TYPE or I-TYPE"),
        ("O E-A", "iob1", 1, "is not O, B-TYPE or I-TYPE"),
    ],
)
def test_reports_bad_tags(tags: str, scheme: str, place: int, reason: str) -> None:
    bad = find_bad_tag(tags.split(), scheme)  # type: ignore[arg-type]
    assert bad is not None
    assert bad.place == place
    assert reason in f"{bad.reason}. {bad.remedy}"


def test_accepts_legal_tags() -> None:
    assert find_bad_tag(["B-A", "I-A", "B-A", "O", "B-B", "I-B"], "bio") is None
    assert find_bad_tag(["I-A", "I-B", "O", "I-B", "B-B"], "iob1") is None
    assert find_bad_tag(["NOUN", "I-A"], "plain") is None


def test_converts_iob1() -> None:
    tags = ["I-A", "I-A", "B-A", "O", "I-B", "I-A"]
    assert " ".join(bio_from_iob1(tags)) == "B-A I-A B-A O B-B B-A"
    legal = ("B-A", "I-A", "O", "B-B")
    assert bio_from_iob1(legal) == legal


def test_f1_counts_excluded_types_nowhere() -> None:
    truth = [["B-V", "B-A", "I-A"], ["B-B"]]
    found = [["B-V", "B-A", "O"], ["B-B"]]
    assert span_f1(truth, found) == pytest.approx(2 * 2 / 6)
    assert span_f1(truth, found, SpanRules(("V",))) == pytest.approx(2 * 1 / 4)
    assert span_f1([["O"]], [["O"]]) == 0.0


def test_continuations_are_joined_with_the_last_span_of_their_type() -> None:
    tags = ["B-A", "B-B", "B-A", "O", "B-C-A", "I-C-A", "B-C-B", "B-C-A", "B-C-D", "B-C-D"]
    joined = joined_continuations(spans_of(tags))
    assert joined == [
        Span("A", 0, 1),
        Span("B", 1, 2, ((6, 7),)),
        Span("A", 2, 3, ((4, 6), (7, 8))),
        Span("D", 8, 9, ((9, 10),)),
    ]
    assert ranges_of(joined[2]) == [Span("A", 2, 3), Span("C-A", 4, 6), Span("C-A", 7, 8)]
    assert ranges_of(joined[0]) == [joined[0]]


def test_labels_have_both_prefixes() -> None:
    assert bio_labels(["PER", "LOC"]) == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
