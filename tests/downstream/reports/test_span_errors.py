from __future__ import annotations

import re
from html import unescape

from downstream.reports.span_errors import SpanError, errors_page, marked_context
from downstream.texts.offsets import Range
from downstream.texts.passages import Question, Reference

CONTEXT = "<b>the & cat</b> sat on a mat"


def error(answer: tuple[int, int], *references: tuple[int, int]) -> SpanError:
    answers = tuple(Reference(CONTEXT[a:b], a) for a, b in references)
    question = Question("<id>", "Who <i>sat</i>?", answers, "f.jsonl, line 1: qas[0]")
    return SpanError(CONTEXT, question, Range(*answer), 0.25, 0.5)


def test_marks_spans_in_the_escaped_context() -> None:
    shown = marked_context(error((3, 12), (9, 12), (9, 20)))
    assert shown == (
        '&lt;b&gt;<mark class="predicted">the &amp; </mark><mark class="both">cat</mark>'
        '<mark class="reference">&lt;/b&gt; sat</mark> on a mat'
    )
    assert unescape(re.sub(r"</?mark[^>]*>", "", shown)) == CONTEXT


def test_page_escapes_all_texts() -> None:
    page = errors_page([error((0, 6), (9, 12))], 7)
    assert "1 of 7 test questions" in page
    assert "<i>" not in page
    assert "<id>" not in page
    assert "<b>the" not in page
    assert 'Predicted: <b dir="auto">&lt;b&gt;the</b>' in page


def test_record_has_the_question_the_prediction_and_the_references() -> None:
    record = error((3, 6), (9, 12)).record()
    assert record["prediction"] == {"text": "the", "start": 3, "end": 6, "score": 0.25}
    assert record["references"] == [{"text": "cat", "start": 9, "end": 12}]
    assert record["question"] == "Who <i>sat</i>?"


def test_marks_differ_without_color() -> None:
    page = errors_page([error((0, 6), (9, 12))], 1)
    for kind, line in (("predicted", "dashed"), ("reference", "solid"), ("both", "double")):
        assert re.search(rf"mark\.{kind} {{[^}}]*border-bottom: \dpx {line}", page)
    assert '<p class="context" dir="auto">' in page
    assert "References: <bdi>cat</bdi>" in page
