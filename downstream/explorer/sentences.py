"""The words of the sentences of a request, within the limits of the service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bilm.errors import BilmError
from bilm.text.tokenizers import Tokenizer
from downstream.explorer.limits import RequestLimits


class RequestError(BilmError):
    """A request cannot be computed; its sender can fix it."""


class UnavailableError(BilmError):
    """The service was started without what a request needs."""


@dataclass(frozen=True)
class SentenceParser:
    """Turns the sentences of a request into lists of words."""

    tokenizer: Tokenizer | None
    limits: RequestLimits

    def parse(self, sentences: Sequence[str | list[str]]) -> list[list[str]]:
        """Return the words of each sentence; raise RequestError if a limit is exceeded."""
        self._check_sizes(sentences)
        words = [self._words(i, sentence) for i, sentence in enumerate(sentences)]
        _check(sum(map(len, words)), self.limits.max_words, "words")
        return words

    def check_texts(self, texts: Sequence[str]) -> int:
        """Check texts that a classifier will split, and return their number of words at spaces."""
        self._check_sizes(texts)
        num_words = sum(len(text.split()) for text in texts)
        _check(num_words, self.limits.max_words, "words")
        return num_words

    def _check_sizes(self, sentences: Sequence[str | list[str]]) -> None:
        _check(len(sentences), self.limits.max_sentences, "sentences")
        # Characters are counted before anything is tokenized; an empty word counts as one.
        sizes = (
            len(sentence) if isinstance(sentence, str) else sum(len(word) + 1 for word in sentence)
            for sentence in sentences
        )
        _check(sum(sizes), self.limits.max_characters, "characters")

    def _words(self, number: int, sentence: str | list[str]) -> list[str]:
        if isinstance(sentence, str):
            if self.tokenizer is None:
                raise RequestError(
                    f"sentence {number} is a string, but this model has no tokenizer; send lists "
                    "of words"
                )
            return self.tokenizer.tokenize(sentence)
        for word in sentence:
            if word.split() != [word]:
                raise RequestError(
                    f"sentence {number} contains the word {word[:40]!r}; a word must have "
                    "characters, and no spaces. Send the sentence as a string to have it split"
                )
        return sentence


def check_position(words: Sequence[str], position: int) -> None:
    """Reject a position outside the sentence."""
    if position >= len(words):
        raise RequestError(
            f"position is {position}, but the sentence has {len(words)} words; positions start at 0"
        )


def _check(number: int, maximum: int, what: str) -> None:
    if number > maximum:
        raise RequestError(
            f"the request has {number:,} {what}; the limit is {maximum:,}. Send several requests"
        )
