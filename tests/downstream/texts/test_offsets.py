from __future__ import annotations

import pytest

from bilm.text.tokenizers import MosesTokenizer
from downstream.texts.offsets import word_ranges


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
