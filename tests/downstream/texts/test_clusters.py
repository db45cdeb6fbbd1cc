from __future__ import annotations

from downstream.texts.clusters import (
    Mention,
    clusters_within,
    joined_clusters,
    linked_clusters,
    mentions_of,
    sorted_clusters,
    without_singletons,
)

A, B, C, D = (Mention(i, i) for i in range(4))


def test_links_become_clusters_in_the_order_of_the_text() -> None:
    mentions = [A, B, C, D]
    assert linked_clusters(mentions, [-1, -1, 0, 2], lambda i: False) == ((A, C, D),)
    assert linked_clusters(mentions, [-1, -1, 0, 2], lambda i: i == 1) == ((A, C, D), (B,))
    assert linked_clusters(mentions, [-1, 0, -1, 2], lambda i: False) == ((A, B), (C, D))
    assert linked_clusters([], [], lambda i: True) == ()


def test_clusters_of_windows_are_joined_by_common_mentions() -> None:
    assert joined_clusters([((A, B), (C,))]) == ((A, B), (C,))
    assert joined_clusters([((A, B),), ((B, C), (D,))]) == ((A, B, C), (D,))
    assert joined_clusters([((A, B), (C, D)), ((B, C),)]) == ((A, B, C, D),)
    assert joined_clusters([((A,),), (), ((A,),)]) == ((A,),)
    assert joined_clusters([((A, B),), ((C, D),), ((A, D),)]) == ((A, B, C, D),)


def test_parts_of_clusters_are_counted_from_the_first_word() -> None:
    clusters = ((Mention(0, 1), Mention(4, 5)), (Mention(2, 3),), (Mention(3, 4),))
    assert clusters_within(clusters, 2, 4) == ((Mention(0, 1),), (Mention(1, 2),))
    assert clusters_within(clusters, 0, 5) == clusters


def test_helpers() -> None:
    assert without_singletons(((A,), (B, C))) == ((B, C),)
    assert mentions_of(((A,), (B, C))) == {A, B, C}
    assert sorted_clusters([[C, B], [D, A]]) == ((A, D), (B, C))
