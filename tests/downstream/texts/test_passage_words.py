from __future__ import annotations

import unicodedata

import numpy as np
import pytest

from bilm.errors import CorpusError
from bilm.text.tokenizers import MosesTokenizer
from downstream.texts.passage_words import (
    AlignedAnswer,
    PassageWords,
    WordSpan,
    question_words,
    tokenize_passage,
)
from downstream.texts.passages import Reference

MOSES = MosesTokenizer()


def passage(text: str) -> PassageWords:
    return tokenize_passage(text, MOSES.tokenize, "the context")


def aligned(text: str, answer: str, start: int | None = None) -> AlignedAnswer | None:
    return passage(text).align(Reference(answer, text.index(answer) if start is None else start))


def test_answers_become_spans_of_words() -> None:
    text = "The cat (a tabby) sat. It slept."
    assert " ".join(passage(text).words) == "The cat ( a tabby ) sat . It slept ."
    assert aligned(text, "a tabby") == AlignedAnswer(WordSpan(3, 4), is_widened=False)
    assert aligned(text, "sat. It") == AlignedAnswer(WordSpan(6, 8), is_widened=False)
    assert aligned(text, " sat ".strip()) == AlignedAnswer(WordSpan(6, 6), is_widened=False)
    assert aligned(text, "at (a tab") == AlignedAnswer(WordSpan(1, 4), is_widened=True)
    assert aligned(text, " cat ") == AlignedAnswer(WordSpan(1, 1), is_widened=False)
    assert passage(text).text_of(WordSpan(1, 4)) == "cat (a tabby"


def test_words_that_the_tokenizer_changed_cover_the_text_between_others() -> None:
    text = "one \uff21\uff22 \u00bd two"
    words = ["one", "AB", "1/2", "two"]
    changed = tokenize_passage(text, lambda _: words, "the context")
    answer = changed.align(Reference("\u00bd", 7))
    assert answer == AlignedAnswer(WordSpan(1, 2), is_widened=True)
    assert changed.text_of(WordSpan(1, 2)) == "\uff21\uff22 \u00bd"


def test_a_span_without_a_counterpart_in_the_text_is_that_of_the_nearest_words() -> None:
    marks = tokenize_passage("a b", lambda _: ["\u2581", "a", "\u2581", "b"], "the context")
    assert marks.text_of(WordSpan(0, 0)) == "a"
    assert marks.text_of(WordSpan(2, 2)) == "a b"
    assert marks.text_of(WordSpan(2, 3)) == "b"


def test_an_answer_may_contain_no_word() -> None:
    dropped = tokenize_passage("a - b", lambda _: ["a", "b"], "the context")
    assert dropped.align(Reference("-", 2)) is None
    assert dropped.align(Reference("- b", 2)) == AlignedAnswer(WordSpan(1, 1), is_widened=True)


@pytest.mark.parametrize(
    "text",
    [
        "Zoe\u0308 ate a cre\u0300me bru\u0302le\u0301e\u200b at 5\u00a0pm \u2014 \u201cyum!\u201d",
        "\U0001f600 smiles\u2026 and \u0130stanbul's \ufb01ne \u1e9e street, e.g. no. 5",
        "\u65e5\u672c\u8a9e\u306e\u6587\u3002 And English\ttoo,\n\nwith  spaces .",
        "\u0627\u0644\u0633\u0644\u0627\u0645 \u0639\u0644\u064a\u0643\u0645\u061f yes",
    ],
)
def test_spans_reproduce_the_text(text: str) -> None:
    for form in ("NFC", "NFD"):
        words = passage(unicodedata.normalize(form, text))
        starts = [r.start for r in words.ranges]
        assert starts == sorted(starts)
        assert all(not r or words.text[slice(*r)].strip() for r in words.ranges)
        rng = np.random.default_rng(0)
        for _ in range(30):
            first, last = sorted(rng.integers(0, len(words.words), size=2).tolist())
            found = words.text_of(WordSpan(first, last))
            start = words.ranges[first].start
            if not found.strip():
                continue
            answer = words.align(Reference(found, start))
            assert answer is not None
            assert words.text_of(answer.span) == found


def test_divides_passages_into_sentences() -> None:
    text = 'He said "Stop." "Why?" she asked Dr. No (twice!). Then... nothing'
    assert [" ".join(s) for s in passage(text).sentences()] == [
        'He said " Stop . "',
        '" Why ? "',
        "she asked Dr. No ( twice ! ) .",
        "Then ...",
        "nothing",
    ]
    assert passage("no end").sentences() == [("no", "end")]


def test_rejects_texts_without_words() -> None:
    with pytest.raises(CorpusError, match="the context 'x' has no words"):
        tokenize_passage("x", lambda _: [], "the context")
    with pytest.raises(CorpusError, match="the question 'x' has no words"):
        question_words("x", lambda _: [], "the question")
