from __future__ import annotations

import re

from downstream.reports.cluster_page import (
    MAX_SHOWN_DOCUMENTS,
    Numbers,
    cluster_numbers,
    cluster_page,
)
from downstream.reports.coref_errors import Resolved, error_paragraphs
from downstream.reports.coreference import GenreScore, genre_scores, genre_section
from downstream.texts.clusters import Clusters, Mention
from downstream.texts.documents import Document

A, INNER, OUTER, ONE = Mention(0, 0), Mention(3, 3), Mention(2, 3), Mention(4, 4)
SENTENCES = (("Ann", "saw"), ("her", "cat", "."))


def resolved(truth: Clusters, predicted: Clusters, name: str = "d") -> Resolved:
    return Resolved(Document(name, SENTENCES, truth), truth, predicted)


def page(*documents: Resolved) -> str:
    return cluster_page(documents, "<p>the source</p>")


def rows(*documents: Resolved) -> list[tuple[str, str]]:
    """Return the true and the predicted side of each sentence as text with brackets."""
    cells = re.findall(r'<span dir="auto">(.*?)</span></p>', page(*documents))
    texts = [re.sub(r"<[^>]*>", "", cell) for cell in cells]
    return list(zip(texts[::2], texts[1::2], strict=True))


def test_aligned_clusters_have_the_same_number() -> None:
    truth = ((A,), (OUTER, INNER), (ONE, Mention(1, 1)))
    predicted = ((A, Mention(2, 2)), (ONE,), (OUTER,), (INNER, Mention(5, 5)))
    # The first true cluster has one mention, but its predicted one has two.
    assert cluster_numbers(truth, predicted) == Numbers((1, 2, 3), (1, 3, 2, 4))
    assert cluster_numbers(((A,),), ((A,), (ONE,))) == Numbers((None,), (None, None))


def test_alignment_has_as_many_common_mentions_as_possible() -> None:
    mentions = tuple(Mention(i, i) for i in range(6))
    truth = (mentions[:3], mentions[3:])
    predicted = ((mentions[0], mentions[1], mentions[3]), (mentions[2], *mentions[4:]))
    assert cluster_numbers(truth, predicted).predicted == (1, 2)


def test_sentences_have_both_sides_and_signs_of_errors() -> None:
    one = resolved(((A, INNER), (ONE,)), ((A, OUTER), (ONE,)))
    assert rows(one) == [
        ("[1Ann] saw", "[1Ann] saw"),
        ("her [−1cat] [.]", "[+1her cat] [.]"),
    ]
    text = page(one)
    assert "Mentions: 1 missed, 1 wrong, 0 in another cluster, 2 without" in text
    assert '<span class="m c0 missed">[<b class="k">−</b><b>1</b>cat]</span>' in text
    assert '<span class="m c0 wrong">[<b class="k">+</b><b>1</b>her cat]</span>' in text
    assert text.count("<p>the source</p>") == 1


def test_mention_in_another_cluster_is_marked_on_both_sides() -> None:
    one = resolved(((A, INNER, ONE),), ((A, INNER), (ONE,)))
    assert rows(one)[1] == ("her [1cat] [≠1.]", "her [1cat] [≠.]")
    assert "Mentions: 0 missed, 0 wrong, 1 in another cluster, 2 without" in page(one)


def test_mentions_are_nested() -> None:
    longer, other = Mention(0, 1), Mention(2, 2)
    one = resolved((), ((A, longer), (OUTER, other)))
    assert rows(one)[0][1] == "[+1[+1Ann] saw]"
    assert rows(one)[1][1] == "[+2[+2her] cat] ."


def test_clusters_of_one_mention_are_gray_and_take_no_color() -> None:
    text = page(resolved(((A,), (INNER, ONE)), ()))
    assert '<span class="m s missed">[<b class="k">−</b>Ann]</span>' in text
    assert '<span class="m c0 missed">[<b class="k">−</b><b>1</b>cat]</span>' in text


def test_words_and_names_are_escaped() -> None:
    sentences = (("<script>", "&"),)
    clusters: Clusters = ((A, Mention(1, 1)),)
    text = page(Resolved(Document("<x>", sentences, clusters), clusters, clusters))
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "&lt;x&gt;" in text
    assert "&amp;]" in text


def test_shows_a_limited_number_of_documents() -> None:
    text = page(*[resolved((), (), f"d{i}") for i in range(MAX_SHOWN_DOCUMENTS + 1)])
    assert f"{MAX_SHOWN_DOCUMENTS} of {MAX_SHOWN_DOCUMENTS + 1} test documents" in text
    assert text.count("<h2 ") == MAX_SHOWN_DOCUMENTS


def test_finds_the_direction_of_texts() -> None:
    text = page(resolved((), ((A,),), "d"))
    assert '<span dir="auto">' in text
    assert '<h2 dir="auto">d</h2>' in text


def test_report_has_errors_in_their_sentences_and_a_link() -> None:
    one = resolved(((A, INNER),), ((A, OUTER),))
    text = "\n".join(error_paragraphs([one, one]))
    assert "[documents.html](documents.html)" in text
    assert text.count("- her **[cat]** . (d)") == 2
    assert text.count("- **[her cat]** . (d)") == 2
    assert "2 missed mentions. The most frequent ones, counted in lower case" in text


def test_scores_of_genres_leave_out_documents_without_one() -> None:
    clusters: Clusters = ((A, INNER),)
    documents = [
        Resolved(Document("d", SENTENCES, clusters, genre), clusters, predicted)
        for genre, predicted in (("news", clusters), ("chat", ()), ("news", clusters), (None, ()))
    ]
    by_genre = genre_scores(documents)
    assert by_genre == {"chat": GenreScore(0.0, 1), "news": GenreScore(1.0, 2)}
    heading, table = genre_section(by_genre)
    assert heading == "## Genres (test)"
    assert "| news  | 100.00      | 2         |" in table.splitlines()
    assert genre_section({}) == []
