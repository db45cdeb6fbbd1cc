from __future__ import annotations

import pytest

from bilm.text.tokenizers import MosesTokenizer
from downstream.texts.offsets import (
    Range,
    covering_ranges,
    joined_ranges,
    range_of_words,
    word_ranges,
)


def words_at(text: str, words: list[str]) -> list[str]:
    return [text[start:end] for start, end in word_ranges(text, words)]


@pytest.mark.parametrize(
    ("text", "words", "found"),
    [
        ("a  b\tc", ["a", "b", "c"], ["a", "b", "c"]),
        ("It's 5.", ["It", "'s", "5", "."], ["It", "'s", "5", "."]),
        ("Ab AB", ["ab", "ab"], ["Ab", "AB"]),
        ("New York", ["▁New", "▁Y", "ork"], ["New", "Y", "ork"]),
        ("a \x01b", ["a", "b"], ["a", "b"]),
        ("İs it", ["i̇s", "it"], ["", "it"]),  # a lower case of another length
        ("½ cup", ["1⁄2", "cup"], ["", "cup"]),
        ("a a", ["a", "b", "a"], ["a", "", "a"]),
        ("", ["a"], [""]),
    ],
)
def test_finds_words(text: str, words: list[str], found: list[str]) -> None:
    assert words_at(text, words) == found


def test_finds_the_words_of_a_tokenizer() -> None:
    text = "He said: \"It isn't 1,000.5 kg... (not now)\", at www.a.com -- e.g. Mr. Smith's."
    words = MosesTokenizer().tokenize(text)
    assert words_at(text, words) == words


def test_words_that_the_tokenizer_changed_cover_the_text_between_others() -> None:
    words = ["one", "AB", "1/2", "two"]
    found = covering_ranges("one \uff21\uff22 \u00bd two", words)
    assert found == [Range(0, 3), Range(4, 8), Range(4, 8), Range(9, 12)]
    marks = covering_ranges("a b", ["\u2581", "a", "\u2581", "b", "\u2581"])
    assert marks == [Range(0, 0), Range(0, 1), Range(2, 2), Range(2, 3), Range(3, 3)]


def test_range_of_several_words_ignores_empty_ranges() -> None:
    ranges = [Range(0, 0), Range(0, 1), Range(3, 3), Range(3, 4), Range(6, 6)]
    assert range_of_words("a  b  ", ranges) == Range(0, 4)
    assert range_of_words("a  b  ", ranges[1:3]) == Range(0, 1)
    assert range_of_words("a  b  ", ranges[2:3]) == Range(3, 3)


def test_ranges_of_a_list_of_words_are_those_in_the_joined_text() -> None:
    words = ["didn't", "go", "New York"]
    text = " ".join(words)
    assert [text[start:end] for start, end in joined_ranges(words)] == words
