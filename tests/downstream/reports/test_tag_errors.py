from __future__ import annotations

import re
from html import unescape
from pathlib import Path

from downstream.reports.error_pages import MAX_ERRORS_ON_PAGE
from downstream.reports.plots import plot_confused
from downstream.reports.tag_errors import PageHeading, TagError, errors_page
from downstream.texts.tag_sequences import Span

WORDS = ("<i>", "New", "York", "&", "Ann", "left")
CITY, PERSON, PLACE = Span("ORG", 1, 3), Span("PER", 4, 5), Span("LOC", 1, 3)


SENTENCES = PageHeading("Wrong spans", "sentences", 900, "<p>the source</p>")
PREDICATES = PageHeading("Wrong arguments", "predicates", 900, "<p>the source</p>")


def error(predicate: int | None = None) -> TagError:
    return TagError("f.tsv, line 3", WORDS, {PERSON, CITY}, {PLACE, PERSON}, predicate)


def test_record_has_what_was_missed_and_what_is_wrong() -> None:
    record = error().record()
    assert record == {
        "place": "f.tsv, line 3",
        "words": list(WORDS),
        "missed": [["ORG", 1, 3]],
        "wrong": [["LOC", 1, 3]],
    }
    assert error(predicate=5).record()["predicate"] == 5


def test_page_marks_true_and_predicted_spans_in_escaped_words() -> None:
    page = errors_page([error(predicate=5)], SENTENCES)
    assert "1 of 900 test sentences have an error. <mark" in page
    assert "<h1>Wrong spans</h1>\n<p>the source</p>" in page
    person = '<mark class="right">Ann<sub>PER</sub></mark> <u>left</u>'
    missed = '<mark class="missed">New York<sub>ORG</sub></mark>'
    wrong = '<mark class="wrong">New York<sub>LOC</sub></mark>'
    for side, marked in (("true", missed), ("predicted", wrong)):
        start = f'<b class="side">{side}</b><span dir="auto">'
        assert f"{start}&lt;i&gt; {marked} &amp; {person}</span></p>" in page
    assert "<i>" not in page


def test_discontinuous_spans_have_all_of_their_ranges() -> None:
    split = Span("ARG1", 1, 3, ((4, 5),))
    found = TagError("f.jsonl, line 1", WORDS, {split}, {Span("ARG1", 1, 3)}, predicate=5)
    assert found.record()["missed"] == [["ARG1", 1, 3, [[4, 5]]]]
    assert found.record()["wrong"] == [["ARG1", 1, 3]]
    assert found.text_of(split) == "New York ... Ann"
    first = '<mark class="missed">New York<sub>ARG1</sub></mark>'
    second = '<mark class="missed">Ann<sub>C-ARG1</sub></mark>'
    assert f"{first} &amp; {second} <u>left</u>" in errors_page([found], PREDICATES)


def test_page_has_all_words_of_a_sentence() -> None:
    page = errors_page([error()], SENTENCES)
    (line,) = re.findall(r'<b class="side">true</b><span dir="auto">(.*)</span></p>', page)
    assert unescape(re.sub(r"<sub>.*?</sub>|<[^>]*>", "", line)).split() == list(WORDS)


def test_page_shows_a_limited_number_of_errors() -> None:
    page = errors_page([error()] * (MAX_ERRORS_ON_PAGE + 1), PREDICATES)
    assert f"{MAX_ERRORS_ON_PAGE + 1} of 900 test predicates have an error" in page
    assert f"the first {MAX_ERRORS_ON_PAGE} are shown" in page
    assert page.count("<article>") == MAX_ERRORS_ON_PAGE


def test_legend_has_the_marks_that_occur() -> None:
    both, predicate = '<mark class="right">both</mark>', "<u>underlined</u>: the predicate"
    plain = TagError("f.conllu, line 1", WORDS, {Span("N", 1, 2)}, {Span("V", 1, 2)})
    cases = ((error(), True, False), (error(5), True, True), (plain, False, False))
    for one, has_both, has_predicate in cases:
        page = errors_page([one], SENTENCES)
        assert (both in page, predicate in page) == (has_both, has_predicate)


def test_plots_many_confusions_and_none(tmp_path: Path) -> None:
    many = [(f"B-{i}", f"B-{i + 1}", 50 - i) for i in range(40)]
    for name, confusions in (("many", many), ("none", [])):
        plot_confused(confusions, len(confusions), tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
