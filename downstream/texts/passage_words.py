"""The words of passages and questions, and the answers as spans of words.

The tokenizer of the biLM splits a text into words, whose character offsets are found in the text
(`offsets.py`). A passage is also divided into sentences, which are what a biLM was trained to read:
a sentence ends after a word that is a full stop, a question mark or an exclamation mark, including
closing quotes and brackets that follow without a space.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bilm.errors import CorpusError
from downstream.texts.offsets import Range, covering_ranges, range_of_words
from downstream.texts.passages import PassageFile, Reference

Split = Callable[[str], list[str]]  # a text into words

_SENTENCE_ENDS = frozenset(
    (".", "!", "?", "...", "\u2026", "\u3002", "\uff01", "\uff1f", "\u061f", "\u0964")
)
_CLOSERS = frozenset("\"'\u201d\u2019\u00bb)]}")


class WordSpan(NamedTuple):
    """A span of words of a passage; `end` is the index of its last word."""

    start: int
    end: int


class AlignedAnswer(NamedTuple):
    """The span of words that cover an answer, and whether they contain more than the answer."""

    span: WordSpan
    is_widened: bool


@dataclass(frozen=True)
class PassageWords:
    """The words of a text, their ranges of characters, and the number of words of each sentence."""

    text: str
    words: tuple[str, ...]
    ranges: tuple[Range, ...]
    sentence_lengths: tuple[int, ...]

    @classmethod
    def of(cls, text: str, words: Sequence[str], ranges: Sequence[Range]) -> PassageWords:
        """Divide the words of a text into sentences."""
        return cls(text, tuple(words), tuple(ranges), tuple(_sentence_lengths(words, ranges)))

    def sentences(self) -> list[tuple[str, ...]]:
        """Return the sentences as words."""
        result, start = [], 0
        for length in self.sentence_lengths:
            result.append(self.words[start : start + length])
            start += length
        return result

    def range_of(self, span: WordSpan) -> Range:
        """Return the range of characters of a span of words, without white space at its ends.

        If no word of the span has a range, it is that of the nearest words that have one.
        """
        first, last = span
        while True:
            found = range_of_words(self.text, self.ranges[first : last + 1])
            if found.start < found.end or (first == 0 and last + 1 == len(self.ranges)):
                return found
            first, last = max(0, first - 1), min(last + 1, len(self.ranges) - 1)

    def text_of(self, span: WordSpan) -> str:
        """Return the text of a span of words."""
        start, end = self.range_of(span)
        return self.text[start:end]

    def align(self, reference: Reference) -> AlignedAnswer | None:
        """Return the words that an answer overlaps; None if it overlaps none.

        The ranges of words are in order, and words without a range overlap nothing.
        """
        stripped = reference.text.strip()
        start = reference.start + reference.text.index(stripped)
        end = start + len(stripped)
        first = bisect_right(self.ranges, start, key=lambda r: r.end)
        last = bisect_left(self.ranges, end, key=lambda r: r.start) - 1
        while first <= last and self.ranges[first].end == self.ranges[first].start:
            first += 1
        while first <= last and self.ranges[last].end == self.ranges[last].start:
            last -= 1
        if first > last:
            return None
        span = WordSpan(first, last)
        return AlignedAnswer(span, self.range_of(span) != (start, end))


@dataclass(frozen=True)
class TokenizedFile:
    """The words of the passages of a file and of their questions, in the order of the file."""

    passages: tuple[PassageWords, ...]
    questions: tuple[tuple[tuple[str, ...], ...], ...]  # of each passage

    def texts(self) -> list[tuple[str, ...]]:
        """Return everything that the biLM reads: the sentences of all passages, all questions."""
        sentences = [sentence for passage in self.passages for sentence in passage.sentences()]
        return sentences + [words for questions in self.questions for words in questions]


def tokenize_file(file: PassageFile, split: Split) -> TokenizedFile:
    """Split all passages and questions of a file into words."""
    passages, questions = [], []
    for passage in file.passages:
        first = passage.questions[0].place
        passages.append(tokenize_passage(passage.text, split, f"{first}: the context"))
        questions.append(
            tuple(
                question_words(q.text, split, f"{q.place}: the question") for q in passage.questions
            )
        )
    return TokenizedFile(tuple(passages), tuple(questions))


def question_words(text: str, split: Split, what: str) -> tuple[str, ...]:
    """Return the words of a question; `what` names it in errors."""
    words = tuple(split(text))
    if not words:
        raise CorpusError(f"{what} {text[:60]!r} has no words; remove it")
    return words


def tokenize_passage(text: str, split: Split, what: str) -> PassageWords:
    """Split a passage into words and sentences; `what` names it in errors."""
    words = split(text)
    if not words:
        raise CorpusError(f"{what} {text[:60]!r} has no words; remove it")
    return PassageWords.of(text, words, covering_ranges(text, words))


def _sentence_lengths(words: Sequence[str], ranges: Sequence[Range]) -> list[int]:
    lengths = []
    start = i = 0
    while i < len(words):
        is_end = words[i] in _SENTENCE_ENDS
        i += 1
        if not is_end:
            continue
        while i < len(words) and (
            words[i] in _SENTENCE_ENDS
            or (words[i] in _CLOSERS and ranges[i].start == ranges[i - 1].end)
        ):
            i += 1
        lengths.append(i - start)
        start = i
    return [*lengths, len(words) - start] if start < len(words) else lengths
