from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bilm.embedding.sentence_batches import MIN_ROWS, length_batches, windows


@given(st.lists(st.integers(0, 60), max_size=80), st.integers(1, 200))
def test_windows_keep_order_and_size_limit(sizes: list[int], max_words: int) -> None:
    sentences = [["w"] * size for size in sizes]
    found = list(windows(iter(sentences), max_words))
    assert [s for window in found for s in window] == sentences
    totals = [sum(len(s) + 2 for s in window) for window in found]
    assert all(t <= max_words or len(w) == 1 for t, w in zip(totals, found, strict=True))
    # No window could have taken the next sentence too.
    for total, after in zip(totals, found[1:], strict=False):
        assert total + len(after[0]) + 2 > max_words


@given(st.lists(st.integers(1, 300), max_size=120), st.integers(1, 2000))
def test_batches_contain_every_sentence_once_within_the_limit(
    lengths: list[int], batch_words: int
) -> None:
    batches = length_batches(lengths, batch_words)
    flat = [i for batch in batches for i in batch]
    assert sorted(flat) == list(range(len(lengths)))
    assert [lengths[i] for i in flat] == sorted(lengths, reverse=True)
    for batch in batches:
        assert len(batch) <= MIN_ROWS or len(batch) * lengths[batch[0]] <= batch_words
