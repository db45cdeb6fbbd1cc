"""The windows of a text, with any set of finished ones."""

from __future__ import annotations

import random

import pytest

from bilm.embedding.sentence_batches import windows
from bilm.embedding.text_windows import NUM_FIRST_WINDOWS, TextWindows
from bilm.embedding.vector_file import Line

MAX_WORDS = 40


def random_lines(seed: int, count: int = 300) -> list[Line]:
    """Return lines of up to 12 words, some of them empty, and one longer than a window."""
    rng = random.Random(seed)
    words = [[f"w{rng.randrange(50)}" for _ in range(rng.randrange(13))] for _ in range(count)]
    words.insert(rng.randrange(count), ["long"] * (2 * MAX_WORDS))
    return [Line(" ".join(line), line) for line in words]


@pytest.mark.parametrize("seed", range(5))
def test_skips_finished_windows(seed: int) -> None:
    lines = random_lines(seed)
    expected = dict(enumerate(windows(lines, MAX_WORDS)))
    assert len(expected) > 2 * NUM_FIRST_WINDOWS
    rng = random.Random(seed)
    chosen = [n for n in expected if rng.random() < 0.5]
    for numbers in ([], chosen, list(expected), list(expected)[:-1], list(expected)[1:]):
        finished = {n: len(expected[n]) for n in numbers}
        found = TextWindows((line.text for line in lines), str.split, MAX_WORDS, finished)
        assert dict(found.unfinished()) == {n: w for n, w in expected.items() if n not in finished}


def test_first_words_do_not_depend_on_finished_windows() -> None:
    lines = random_lines(0)
    expected = list(windows(lines, MAX_WORDS))
    words = [w for window in expected[:NUM_FIRST_WINDOWS] for line in window for w in line.words]
    tokenized: list[str] = []

    def tokenize(text: str) -> list[str]:
        tokenized.append(text)
        return text.split()

    for finished in ({}, {n: len(window) for n, window in enumerate(expected)}):
        tokenized.clear()
        found = TextWindows((line.text for line in lines), tokenize, MAX_WORDS, finished)
        assert list(found.first_words()) == words
        assert len(list(found.unfinished())) == len(expected) - len(finished)
    # Of the finished windows, only those with the first words were tokenized.
    assert len(tokenized) == sum(map(len, expected[:NUM_FIRST_WINDOWS])) + 1


@pytest.mark.parametrize("texts", [[], ["a b"], [""]])
def test_accepts_text_of_at_most_one_line(texts: list[str]) -> None:
    found = TextWindows(texts, str.split, MAX_WORDS, {})
    assert list(found.first_words()) == [word for text in texts for word in text.split()]
    assert list(found.unfinished()) == [(0, [Line(t, t.split()) for t in texts])][: len(texts)]
