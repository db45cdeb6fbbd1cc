from __future__ import annotations

import numpy as np
import pytest

from bilm.text.characters import char_ids
from tests.conftest import GOLDEN


def test_a_word_is_begin_bytes_end_padding() -> None:
    assert char_ids(["né"])[0].tolist() == [258, 110, 195, 169, 259] + [260] * 45


def test_border_words() -> None:
    ids = char_ids(["<S>", "</S>", "<UNK>"])
    assert ids[0].tolist() == [258, 256, 259] + [260] * 47
    assert ids[1].tolist() == [258, 257, 259] + [260] * 47
    assert ids[2].tolist() == [258, *b"<UNK>", 259] + [260] * 43


def test_long_words_are_cut_at_48_bytes_even_in_mid_character() -> None:
    ids = char_ids(["x" * 10_000, "x" * 47 + "é"])
    assert ids[0].tolist() == [258] + [120] * 48 + [259]
    assert ids[1].tolist() == [258] + [120] * 47 + [195, 259]


@pytest.mark.parametrize("word", ["", "\ud800", "😀", "\x00", " ", "a\udfffb"])
def test_odd_words_have_rows(word: str) -> None:
    row = char_ids([word])[0]
    body = word.encode("utf-8", "ignore")
    assert row[: len(body) + 2].tolist() == [258, *body, 259]


def test_no_words() -> None:
    assert char_ids([]).shape == (0, 50)


def test_the_original_gives_the_same_rows() -> None:
    expected = np.load(GOLDEN / "embeddings.npz")["batch0/char_ids"]
    sentences = (GOLDEN / "sentences.txt").read_text(encoding="utf-8").splitlines()[:4]
    for row, sentence in zip(expected, sentences, strict=True):
        words = ["<S>", *sentence.split(), "</S>"]
        np.testing.assert_array_equal(row[: len(words)], char_ids(words) + 1)
        assert not row[len(words) :].any()
