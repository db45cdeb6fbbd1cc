"""Batches of passages with questions, and the spans of their answers.

An example is a window of a passage with at most 8 questions about it, so that the encoding of the
window is computed once for all of them. A passage of more than `max_words` words has several
windows, each of which overlaps the next by half; this bounds the memory of a batch, in which
attention is quadratic in the number of words. For training, a question belongs to the windows that
contain one of its answers; for prediction, to all of them, and its answer is the span with the
highest score.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from downstream.features.batches import Batch, Ids
from downstream.features.word_ranges import WordRanges
from downstream.texts.passage_words import PassageWords, WordSpan

NO_SPAN = -1  # of padding

MAX_QUESTIONS_PER_EXAMPLE = 8


@dataclass(frozen=True)
class SpanQuestion:
    """A question about a passage, and its answers as texts and as spans of words.

    `passage_start` and `words` are places among the words of the file.
    """

    text: str
    passage: PassageWords
    passage_start: int
    words: slice
    references: tuple[str, ...] = ()
    spans: tuple[WordSpan, ...] = ()


class Window(NamedTuple):
    """The words of a passage from `start` to `stop`, which is exclusive."""

    start: int
    stop: int

    def contains(self, span: WordSpan) -> bool:
        """Return whether all words of the span are in the window."""
        return self.start <= span.start and span.end < self.stop


@dataclass(frozen=True)
class SpanExample:
    """A window of a passage, and the indices of questions about the passage."""

    window: Window
    questions: tuple[int, ...]


def windows_of(num_words: int, max_words: int) -> list[Window]:
    """Return windows of at most `max_words` words that cover a passage and overlap by half."""
    if num_words <= max_words:
        return [Window(0, num_words)]
    stride = (max_words + 1) // 2
    starts = [*range(0, num_words - max_words, stride), num_words - max_words]
    return [Window(start, start + max_words) for start in starts]


def make_examples(
    questions: Sequence[SpanQuestion], max_words: int, for_training: bool
) -> list[SpanExample]:
    """Return the examples of questions; those about the same passage must be consecutive.

    For training, a question belongs only to windows that contain one of its answers. An answer
    that no window contains is cut off at the end of the last window in which it starts.
    """
    examples = []
    for first, stop in _runs([question.passage_start for question in questions]):
        for window in windows_of(len(questions[first].passage.words), max_words):
            chosen = [
                i
                for i in range(first, stop)
                if not for_training or _spans_in(questions[i], window, max_words)
            ]
            for k in range(0, len(chosen), MAX_QUESTIONS_PER_EXAMPLE):
                part = chosen[k : k + MAX_QUESTIONS_PER_EXAMPLE]
                examples.append(SpanExample(window, tuple(part)))
    return examples


def _runs(values: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last index (exclusive) of each run of equal values."""
    start = 0
    for i in range(1, len(values) + 1):
        if i == len(values) or values[i] != values[start]:
            yield start, i
            start = i


def _spans_in(question: SpanQuestion, window: Window, max_words: int) -> list[WordSpan]:
    """Return the answers in a window, relative to its start."""
    windows = windows_of(len(question.passage.words), max_words)
    spans = [span for span in question.spans if window.contains(span)]
    if not any(w.contains(span) for span in question.spans for w in windows):
        spans = [
            WordSpan(span.start, window.stop - 1)
            for span in question.spans
            if window == [w for w in windows if w.start <= span.start < w.stop][-1]
        ]
    return [WordSpan(s.start - window.start, s.end - window.start) for s in dict.fromkeys(spans)]


class SpanSource:
    """The examples of a split, read from the words of its file."""

    def __init__(
        self,
        words: WordRanges,
        questions: Sequence[SpanQuestion],
        examples: Sequence[SpanExample],
    ) -> None:
        self._words = words
        self._questions = questions
        self._examples = examples
        lowered: dict[str, int] = {}
        ids = [lowered.setdefault(word.lower(), len(lowered)) for word in words.file.types]
        self._lowered = np.array(ids)  # an id of each type, equal for types in any case

    def __len__(self) -> int:
        return len(self._examples)

    @property
    def lengths(self) -> Ids:
        return np.array([e.window.stop - e.window.start for e in self._examples])

    def batch(self, indices: Ids) -> Batch:
        """Return the windows; `others["questions"]` has the questions of all windows.

        The extras are the window of each question (`window_of`), the place of each window in its
        passage (`starts`), which words an answer may start and end with (`is_answerable`), and for
        each question, which words of its window also occur in it, in any case (`is_asked`).
        """
        examples = [self._examples[i] for i in indices]
        ranges = [_shifted(e.window, self._passage_start(e)) for e in examples]
        batch = self._words.batch(ranges)
        assert batch.mask is not None
        is_answerable = torch.zeros_like(batch.mask)
        is_asked = []
        for row, example in zip(is_answerable, examples, strict=True):
            passage = self._questions[example.questions[0]].passage
            found = [r.start < r.end for r in passage.ranges[slice(*example.window)]]
            row[: len(found)] = torch.tensor(found if any(found) else [True] * len(found))
            is_asked += self._is_asked(example, batch.mask.shape[1])
        places = [self._questions[i].words for e in examples for i in e.questions]
        window_of = np.repeat(np.arange(len(examples)), [len(e.questions) for e in examples])
        extras = {
            "window_of": torch.from_numpy(window_of),
            "starts": torch.tensor([e.window.start for e in examples]),
            "is_answerable": is_answerable,
            "is_asked": torch.from_numpy(np.stack(is_asked)),
        }
        others = {"questions": self._words.batch(places)}
        return replace(batch, extras={**batch.extras, **extras}, others=others)

    def _is_asked(self, example: SpanExample, width: int) -> list[npt.NDArray[np.bool_]]:
        """Return for each question which words of the window it contains, padded to `width`."""
        word_ids = self._words.file.word_ids
        window = self._lowered[word_ids[_shifted(example.window, self._passage_start(example))]]
        rows = []
        for i in example.questions:
            asked = np.isin(window, self._lowered[word_ids[self._questions[i].words]])
            rows.append(np.pad(asked, (0, width - len(asked))))
        return rows

    def _passage_start(self, example: SpanExample) -> int:
        return self._questions[example.questions[0]].passage_start


def _shifted(window: Window, start: int) -> slice:
    return slice(start + window.start, start + window.stop)


class SpanTargets:
    """The answers to the questions of a split, and the examples that contain the questions."""

    def __init__(
        self, questions: Sequence[SpanQuestion], examples: Sequence[SpanExample], max_words: int
    ) -> None:
        self.questions = questions
        self.examples = examples
        self._max_words = max_words

    def __len__(self) -> int:
        return len(self.examples)

    def batch(self, indices: Ids) -> Tensor:
        """Return the spans (questions, answers, 2) in the windows, with -1 for padding.

        A question whose answers are not in its window has only padding.
        """
        rows = [
            _spans_in(self.questions[question], self.examples[i].window, self._max_words)
            for i in indices
            for question in self.examples[i].questions
        ]
        result = np.full((len(rows), max(1, *map(len, rows)), 2), NO_SPAN, dtype=np.int64)
        for row, spans in zip(result, rows, strict=True):
            row[: len(spans)] = np.array(spans).reshape(-1, 2)
        return torch.from_numpy(result)
