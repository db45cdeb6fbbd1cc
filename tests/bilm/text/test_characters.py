from __future__ import annotations

import numpy as np
import pytest

from bilm.text.characters import char_ids, spell
from tests.conftest import GOLDEN


def test_encodes_word_as_begin_bytes_end_padding() -> None:
    assert char_ids(["né"])[0].tolist() == [258, 110, 195, 169, 259] + [260] * 45


def test_encodes_boundary_words() -> None:
    ids = char_ids(["<S>", "</S>", "<UNK>"])
    assert ids[0].tolist() == [258, 256, 259] + [260] * 47
    assert ids[1].tolist() == [258, 257, 259] + [260] * 47
    assert ids[2].tolist() == [258, *b"<UNK>", 259] + [260] * 43


@pytest.mark.parametrize("word", ["<s>", "<S", "</S", "<S>x", "</S>x", "S>/"])
def test_similar_words_are_not_boundaries(word: str) -> None:
    assert char_ids([word])[0, : len(word) + 2].tolist() == [258, *word.encode(), 259]


def test_recognizes_boundary_words_that_would_be_truncated() -> None:
    ids = char_ids(["<S>", "</S>", "abcd"], max_characters=3)
    assert ids.tolist() == [[258, 256, 259], [258, 257, 259], [258, ord("a"), 259]]


def test_truncates_long_words_to_48_bytes_inside_a_character() -> None:
    ids = char_ids(["x" * 10_000, "x" * 47 + "é"])
    assert ids[0].tolist() == [258] + [120] * 48 + [259]
    assert ids[1].tolist() == [258] + [120] * 47 + [195, 259]


@pytest.mark.parametrize("word", ["", "\ud800", "😀", "\x00", " ", "a\udfffb"])
def test_encodes_unusual_words(word: str) -> None:
    row = char_ids([word])[0]
    body = word.encode("utf-8", "ignore")
    assert row[: len(body) + 2].tolist() == [258, *body, 259]


def test_accepts_no_words() -> None:
    assert char_ids([]).shape == (0, 50)


def test_spells_words_in_any_order() -> None:
    text = np.frombuffer(b"cat<S>the", dtype=np.uint8)
    ids = spell(text, np.array([6, 3, 0, 6]), np.array([3, 3, 3, 3]), max_characters=10)
    assert np.array_equal(ids, char_ids(["the", "<S>", "cat", "the"], max_characters=10))


def test_rejects_too_few_characters() -> None:
    with pytest.raises(ValueError, match="max_characters is 2; it must be at least 3"):
        char_ids(["a"], max_characters=2)


def test_equals_the_original_implementation() -> None:
    expected = np.load(GOLDEN / "embeddings.npz")["batch0/char_ids"]
    sentences = (GOLDEN / "sentences.txt").read_text(encoding="utf-8").splitlines()[:4]
    for row, sentence in zip(expected, sentences, strict=True):
        words = ["<S>", *sentence.split(), "</S>"]
        np.testing.assert_array_equal(row[: len(words)], char_ids(words) + 1)
        assert not row[len(words) :].any()
