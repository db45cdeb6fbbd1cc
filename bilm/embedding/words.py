"""The words of sentences: checks, tokenizing, boundary tokens, and the input of the encoder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bilm.errors import CheckpointError
from bilm.model.config import ModelConfig
from bilm.text.characters import BEGIN_SENTENCE_WORD, END_SENTENCE_WORD, char_ids
from bilm.text.tokenizers import Tokenizer, require_tokenizer
from bilm.text.vocabulary import Vocabulary

NOT_IDS = "pass lists of words, not character ids (docs/migration.md)"

Words = Sequence[str] | npt.NDArray[Any]  # the words of one sentence


def words_of(
    sentences: Iterable[Words | str], tokenizer: Tokenizer | None, function: str
) -> Iterator[Sequence[str]]:
    """Yield the words of each sentence; a raw string is tokenized.

    `function` is what the user has called, for messages.
    """
    if isinstance(sentences, str):
        raise TypeError(f"{function} takes a list of sentences; for one sentence, pass [sentence]")
    if not isinstance(sentences, Iterable) or isinstance(sentences, Mapping | Set):
        raise TypeError(f"{function} takes a list of sentences; got {sentences!r:.60}")
    for i, sentence in enumerate(sentences):
        if isinstance(sentence, np.ndarray):
            sentence = sentence.tolist()
        if isinstance(sentence, str):
            model = f"sentence {i} is a string, but this model"
            required = require_tokenizer(tokenizer, "pass lists of words", model, ValueError)
            sentence = required.tokenize(sentence)
        if isinstance(sentence, Tensor):
            raise TypeError(f"sentence {i} is a tensor; {NOT_IDS}")
        if not isinstance(sentence, Sequence):
            raise TypeError(f"sentence {i} is {sentence!r:.60}; it must be a list of words")
        for word in sentence:
            if not isinstance(word, str):
                raise TypeError(f"sentence {i} contains {_problem(word)}")
        yield sentence


def _problem(word: Any) -> str:
    """Describe an item of a sentence that is not a word, and state what to pass."""
    if isinstance(word, Tensor):
        return f"a tensor; {NOT_IDS}"
    items = word.tolist() if isinstance(word, np.ndarray) else word
    first = items
    while isinstance(first, list | tuple) and first:
        first = first[0]
    if isinstance(first, Integral | Tensor) and not isinstance(first, bool):
        found = f"{word!r}, which is not a string" if first is word else "a list of ids"
        return f"{found}; {NOT_IDS}"
    if isinstance(items, list | tuple):
        return "a list, which is not a string; pass one batch at a time, as a list of sentences"
    return f"{word!r:.60}, which is not a string"


def with_boundaries(sentence: Sequence[str]) -> list[str]:
    """Return the words between the boundary tokens."""
    return [BEGIN_SENTENCE_WORD, *sentence, END_SENTENCE_WORD]


def check_vocabulary(config: ModelConfig, vocabulary: Vocabulary | None) -> None:
    """Reject a model that reads word ids without a vocabulary."""
    if config.characters is None and vocabulary is None:
        raise CheckpointError("this model reads word ids, so its vocabulary file is needed")


def encoder_input(
    words: Sequence[str], config: ModelConfig, vocabulary: Vocabulary | None
) -> Tensor:
    """Return character ids (words, characters) in int16, or word ids (words,)."""
    if config.characters is not None:
        return torch.from_numpy(char_ids(words, config.characters.max_characters))
    assert vocabulary is not None  # `check_vocabulary`
    return torch.tensor([vocabulary[word] for word in words])
