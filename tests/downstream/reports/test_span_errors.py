from __future__ import annotations

import re
from html import unescape

from downstream.reports.error_pages import MAX_ERRORS_ON_PAGE
from downstream.reports.span_errors import (
    SpanError,
    error_counts,
    errors_page,
    marked_context,
)
from downstream.texts.offsets import Range
from downstream.texts.passages import Question, Reference

CONTEXT = "<b>the & cat</b> sat on a mat"


SOURCE = "<p>the source</p>"


def error(
    answer: tuple[int, int], *references: tuple[int, int], probability: float = 0.25
) -> SpanError:
    answers = tuple(Reference(CONTEXT[a:b], a) for a, b in references)
    question = Question("<id>", "Who <i>sat</i>?", answers, "f.jsonl, line 1: qas[0]")
    return SpanError(CONTEXT, question, Range(*answer), probability, 0.5)


def test_marks_spans_in_the_escaped_context() -> None:
    shown = marked_context(error((3, 12), (9, 12), (9, 20)))
    assert shown == (
        '&lt;b&gt;<mark class="predicted">the &amp; </mark><mark class="both">cat</mark>'
        '<mark class="reference">&lt;/b&gt; sat</mark> on a mat'
    )
    assert unescape(re.sub(r"</?mark[^>]*>", "", shown)) == CONTEXT


def test_page_escapes_all_texts() -> None:
    page = errors_page([error((0, 6), (9, 12))], 7, SOURCE)
    assert "1 of 7 test questions have an answer that is not an exact match" in page
    assert f"<h1>Wrong answers</h1>\n{SOURCE}" in page
    assert "<i>" not in page
    assert "<id>" not in page
    assert "<b>the" not in page
    assert 'Predicted: <b dir="auto">&lt;b&gt;the</b>' in page


def test_record_has_the_question_the_prediction_and_the_references() -> None:
    record = error((3, 6), (9, 12)).record()
    assert record["prediction"] == {"text": "the", "start": 3, "end": 6, "score": 0.25}
    assert record["references"] == [{"text": "cat", "start": 9, "end": 12}]
    assert record["question"] == "Who <i>sat</i>?"


def test_page_has_the_most_probable_errors_first() -> None:
    errors = [error((0, 6), (9, 12), probability=p / 1000) for p in range(MAX_ERRORS_ON_PAGE + 1)]
    page = errors_page(errors, 900, SOURCE)
    shown = [float(number) for number in re.findall(r"probability (0\.\d+)", page)]
    assert shown == sorted(shown, reverse=True)
    assert len(shown) == MAX_ERRORS_ON_PAGE
    assert shown[0] == MAX_ERRORS_ON_PAGE / 1000
    assert f"{MAX_ERRORS_ON_PAGE} are shown, the highest probability" in page


def test_counts_answers_that_overlap_a_reference() -> None:
    cases = (((3, 6), False), ((3, 9), False), ((3, 10), True), ((11, 13), True), ((12, 13), False))
    errors = [error(answer, (9, 12)) for answer, _ in cases]
    assert [one.overlaps for one in errors] == [overlaps for _, overlaps in cases]
    assert error((0, 2), (9, 12), (1, 5)).overlaps
    counts = "2 answers overlap a reference, and 3 are at another place."
    assert error_counts(errors, 9).endswith(counts)
    assert counts in errors_page(errors, 9, SOURCE)


def test_marks_have_different_lines() -> None:
    page = errors_page([error((0, 6), (9, 12))], 7, SOURCE)
    lines = re.findall(r"mark\.(\w+) \{[^}]*border-bottom: \dpx (\w+)", page)
    assert lines == [("predicted", "dashed"), ("reference", "solid"), ("both", "double")]
    assert '<mark class="both">predicted and reference (double line)</mark>' in page
    assert '<p class="context" dir="auto">' in page
    assert "References: <bdi>cat</bdi>" in page
