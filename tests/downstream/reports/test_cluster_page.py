from __future__ import annotations

from downstream.reports.cluster_page import MAX_SHOWN_DOCUMENTS, ShownDocument, cluster_page
from downstream.texts.clusters import Mention

A, INNER, OUTER, ONE = Mention(0, 0), Mention(3, 3), Mention(2, 3), Mention(4, 4)


def page(*documents: ShownDocument) -> str:
    return cluster_page(documents)


def test_mentions_are_nested_and_numbered() -> None:
    sentences = [["Ann", "saw"], ["her", "cat", "."]]
    text = page(ShownDocument("d", sentences, (), ((A, INNER), (OUTER,), (ONE,))))
    assert '<span class="m c0">[<sub>1</sub>Ann]</span> saw<br>' in text
    outer, inner = '<span class="m s">[<sub>2</sub>her', '<span class="m c0">[<sub>1</sub>cat'
    assert f"{outer} {inner}]</span>]</span>" in text
    assert '<span class="m s">[<sub>3</sub>.]</span>' in text


def test_longer_mentions_that_begin_at_the_same_word_are_outside() -> None:
    text = page(ShownDocument("d", [["a", "b"]], (), ((A,), (Mention(0, 1),))))
    assert '[<sub>2</sub><span class="m s">[<sub>1</sub>a]</span> b]</span>' in text


def test_words_and_names_are_escaped() -> None:
    text = page(ShownDocument("<x>", [["<script>", "&"]], (), ((A, Mention(1, 1)),)))
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "&lt;x&gt;" in text
    assert "&amp;]" in text


def test_shows_a_limited_number_of_documents() -> None:
    documents = [ShownDocument(f"d{i}", [["a"]], (), ()) for i in range(MAX_SHOWN_DOCUMENTS + 1)]
    text = page(*documents)
    assert f"{MAX_SHOWN_DOCUMENTS} of {MAX_SHOWN_DOCUMENTS + 1} test documents" in text
    assert text.count("<h2 ") == MAX_SHOWN_DOCUMENTS


def test_finds_the_direction_of_texts() -> None:
    text = page(ShownDocument("d", [["a"]], (), ((A,),)))
    assert text.count("<p dir='auto'>") == 2
    assert '<h2 dir="auto">d</h2>' in text
