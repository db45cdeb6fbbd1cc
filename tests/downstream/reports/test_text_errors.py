from __future__ import annotations

import json

from downstream.reports.error_pages import ERRORS_FILE, ERRORS_PAGE, MAX_ERRORS_ON_PAGE
from downstream.reports.text_errors import (
    ClassError,
    LabelSetError,
    NumberError,
    error_files,
    error_section,
    residual_section,
)

PAIR = ClassError("f.csv, line 3", {"first": "<i> a", "second": "b & c"}, "x>y", "z", 0.87654)
LABELS = LabelSetError("f.csv, line 4", {"text": "t"}, {"a": 0.1}, {"b": 0.9, "c": 0.8}, ["d"])
NUMBER = NumberError("f.csv, line 5", {"text": "t"}, 2.5, 4.0)


def test_records_have_the_place_the_texts_and_both_sides() -> None:
    assert PAIR.record() == {
        "place": "f.csv, line 3",
        "first": "<i> a",
        "second": "b & c",
        "label": "x>y",
        "predicted": "z",
        "probability": 0.8765,
    }
    assert LABELS.record() == {
        "place": "f.csv, line 4",
        "text": "t",
        "missed": {"a": 0.1},
        "wrong": {"b": 0.9, "c": 0.8},
        "right": ["d"],
    }
    assert NUMBER.record() == {
        "place": "f.csv, line 5",
        "text": "t",
        "number": 2.5,
        "predicted": 4.0,
        "residual": 1.5,
    }


def test_paragraphs_have_both_sides() -> None:
    assert PAIR.paragraph() == "- &lt;i&gt; a  \n  b &amp; c  \n  x&gt;y, predicted: z (0.88)"
    assert LABELS.paragraph() == "- t  \n  missed: a (0.10); wrong: b (0.90), c (0.80)"
    assert NUMBER.paragraph() == "- t  \n  2.50, predicted: 4.00"
    only_missed = LabelSetError("p", {"text": "t"}, {"a": 0.1}, {}, [])
    assert only_missed.summary() == "missed: a (0.10); wrong: -"
    assert only_missed.sides()[1] == "none"


def test_page_escapes_texts_and_marks_labels() -> None:
    page = error_files([PAIR, LABELS], "Wrong classes", "pairs")[ERRORS_PAGE]
    assert "2 of 2 test pairs with a wrong prediction" in page
    assert '<p dir="auto">&lt;i&gt; a</p>\n<p dir="auto">b &amp; c</p>' in page
    true, predicted = '<mark class="missed">x&gt;y</mark>', '<mark class="wrong">z</mark> (0.88)'
    for side, shown in (("true", true), ("predicted", predicted)):
        assert f'<b class="side">{side}</b><span dir="auto">{shown}</span></p>' in page
    assert '<mark class="right">d</mark>, <mark class="missed">a</mark> (0.10)</span></p>' in page
    assert "<i>" not in page


def test_page_and_report_show_some_errors_and_the_file_has_all() -> None:
    errors = [PAIR] * (MAX_ERRORS_ON_PAGE + 1)
    files = error_files(errors, "Wrong classes", "pairs")
    assert files[ERRORS_PAGE].count("<article>") == MAX_ERRORS_ON_PAGE
    assert f"{MAX_ERRORS_ON_PAGE} of {MAX_ERRORS_ON_PAGE + 1} test pairs" in files[ERRORS_PAGE]
    records = [json.loads(line) for line in files[ERRORS_FILE].splitlines()]
    assert records == [PAIR.record()] * (MAX_ERRORS_ON_PAGE + 1)
    heading, text, *shown = error_section(errors, "pairs")
    assert (heading, len(shown)) == ("## Errors (test)", 15)
    assert text.startswith("501 pairs have a wrong prediction")
    assert len(list(residual_section([NUMBER]))) == 3


def test_page_explains_only_the_marks_that_it_has() -> None:
    page = error_files([PAIR], "Wrong classes", "pairs")[ERRORS_PAGE]
    assert '<mark class="wrong">predicted, but not true</mark>.</p>' in page
    assert '<mark class="right">both' not in page
    assert '<mark class="right">both</mark>.' in error_files([LABELS], "t", "texts")[ERRORS_PAGE]


def test_report_without_errors() -> None:
    assert list(error_section([], "texts"))[1:] == ["None of the texts has a wrong prediction."]
    assert (
        "<p>0 of 0 test texts with a wrong prediction.</p>"
        in (error_files([], "Wrong classes", "texts")[ERRORS_PAGE])
    )


def test_long_texts_are_cut_except_in_the_file() -> None:
    text = "word\n\n" * 5_000
    error = ClassError("p", {"text": text}, "x", "y", 0.5)
    assert error.record()["text"] == text
    assert error.paragraph().startswith("- word word ")
    assert "word…  \n  x, predicted" in error.paragraph()
    assert len(error.paragraph()) < 400
    assert len(error.article()) < 6_000
