"""The windows of a text by number: what ranks share, and what an interrupted dump resumes with.

A window depends only on the text, its tokenizer and the size of windows, not on the number of ranks
or on what is already finished. Finished windows are read but not tokenized.

Memory: one window, and at the beginning those whose words the embedder pins (`first_words`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping

from bilm.embedding.vector_file import Line

# Windows whose words are pinned. In a text of one kind they contain 95% of the words to come.
NUM_FIRST_WINDOWS = 8


class TextWindows:
    """Cuts a text into windows as `sentence_batches.windows` does.

    Args:
        texts: the lines of the text.
        tokenize: returns the words of a line.
        max_words: the size of a window.
        finished: the number of lines of each finished window, by its number.
    """

    def __init__(
        self,
        texts: Iterable[str],
        tokenize: Callable[[str], list[str]],
        max_words: int,
        finished: Mapping[int, int],
    ) -> None:
        self._texts = iter(texts)
        self._tokenize = tokenize
        self._max_words = max_words
        self._finished = finished
        self._held: list[Line] = []  # the line that did not fit into the last window
        self._first = [self._read() for _ in range(NUM_FIRST_WINDOWS)]

    def first_words(self) -> Iterator[str]:
        """Yield the words of the first windows; call this before `unfinished`."""
        return (word for window in self._first for line in window for word in line.words)

    def unfinished(self) -> Iterator[tuple[int, list[Line]]]:
        """Yield the windows that are not finished, with their numbers."""
        for number in itertools.count():
            is_finished = number in self._finished
            if self._first:
                window = self._first.pop(0)
            elif is_finished:
                self._skip(self._finished[number])
                continue
            else:
                window = self._read()
            if not window:
                return
            if not is_finished:
                yield number, window

    def _read(self) -> list[Line]:
        """Return the next window; an empty list at the end of the text."""
        window, self._held = self._held, []
        num_words = sum(len(line) + 2 for line in window)
        for text in self._texts:
            line = Line(text, self._tokenize(text))
            num_words += len(line) + 2
            if window and num_words > self._max_words:
                self._held = [line]
                break
            window.append(line)
        return window

    def _skip(self, num_lines: int) -> None:
        for _ in itertools.islice(self._texts, num_lines - len(self._held)):
            pass
        self._held = []
