"""A probabilistic grammar whose entropy is known exactly, and sentences drawn from it.

A sentence is drawn by choosing a template (a topic, a shape and the numbers of its nouns) and then,
independently for each of its slots, a word or nothing. The grammar is *unambiguous*: no sentence
has two derivations, which `find_ambiguity` proves for all sentences at once. So the entropy of
sentences is the entropy of derivations, which has a closed form:

    H = H(template) + sum over templates of P(template) * sum over its slots of H(slot)

Sentences are independent of each other, so no language model, in either direction, can have a
perplexity below exp(H / E[words + 1]) on them; the + 1 is the sentence boundary, which is
predicted too.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

Slot = dict[str, float]  # word -> probability; the empty word leaves the slot empty


@dataclass(frozen=True)
class Template:
    """One way to build a sentence: slots that are filled independently."""

    topic: str
    probability: float
    slots: tuple[Slot, ...]


class Sentence(NamedTuple):
    """A drawn sentence, its label, and its exact log probability (in nats)."""

    words: tuple[str, ...]
    topic: str
    log_probability: float


class Grammar:
    """A grammar of templates whose probabilities sum to 1."""

    def __init__(self, templates: Sequence[Template]) -> None:
        self.templates = tuple(templates)
        for weights in (self._weights(), *(t.values() for p in self.templates for t in p.slots)):
            if abs(math.fsum(weights) - 1) > 1e-9 or min(weights) <= 0:
                raise ValueError(f"probabilities must be positive and sum to 1: {list(weights)}")

    def _weights(self) -> list[float]:
        return [template.probability for template in self.templates]

    @property
    def topics(self) -> list[str]:
        """The labels, sorted."""
        return sorted({template.topic for template in self.templates})

    @property
    def vocabulary(self) -> set[str]:
        """All words."""
        slots = itertools.chain.from_iterable(template.slots for template in self.templates)
        return {word for slot in slots for word in slot if word}

    @property
    def entropy(self) -> float:
        """The entropy of a sentence, in nats."""
        slots = (
            t.probability * _entropy(slot.values()) for t in self.templates for slot in t.slots
        )
        return _entropy(self._weights()) + math.fsum(slots)

    @property
    def expected_words(self) -> float:
        """The mean number of words of a sentence."""
        return math.fsum(
            t.probability * (1 - slot.get("", 0.0)) for t in self.templates for slot in t.slots
        )

    @property
    def limit_perplexity(self) -> float:
        """The lowest perplexity per prediction that any model can have, in either direction."""
        return math.exp(self.entropy / (self.expected_words + 1))

    def sample(self, num_sentences: int, random: np.random.Generator) -> list[Sentence]:
        """Draw sentences, slot by slot for all sentences of a template at once."""
        drawn = random.choice(len(self.templates), size=num_sentences, p=self._weights())
        sentences: list[Sentence | None] = [None] * num_sentences
        for index in np.unique(drawn).tolist():
            template = self.templates[index]
            places = np.flatnonzero(drawn == index).tolist()
            columns = [
                random.choice(len(slot), size=len(places), p=list(slot.values())).tolist()
                for slot in template.slots
            ]
            choices = [list(slot.items()) for slot in template.slots]
            for place, row in zip(places, zip(*columns, strict=True), strict=True):
                filled = [choice[i] for choice, i in zip(choices, row, strict=True)]
                log_probability = math.log(template.probability)
                log_probability += math.fsum(math.log(p) for _, p in filled)
                words = tuple(word for word, _ in filled if word)
                sentences[place] = Sentence(words, template.topic, log_probability)
        return [sentence for sentence in sentences if sentence is not None]

    def derivations(self, words: Sequence[str]) -> list[tuple[str, float]]:
        """Return the topic and probability of each derivation of `words`, found by parsing."""
        derivations = []
        for template in self.templates:
            # n and the probability, for each way to fill the slots so far with n words.
            reached: list[tuple[int, float]] = [(0, template.probability)]
            for slot in template.slots:
                empty = [(n, p * slot[""]) for n, p in reached if "" in slot]
                filled = [
                    (n + 1, p * slot[words[n]])
                    for n, p in reached
                    if n < len(words) and words[n] in slot
                ]
                reached = empty + filled
            derivations += [(template.topic, p) for n, p in reached if n == len(words)]
        return derivations

    def enumerate(self) -> Iterator[Sentence]:
        """Yield every derivation; feasible only for small grammars."""
        for template in self.templates:
            for filled in itertools.product(*(slot.items() for slot in template.slots)):
                probability = math.prod((p for _, p in filled), start=template.probability)
                words = tuple(word for word, _ in filled if word)
                yield Sentence(words, template.topic, math.log(probability))

    def find_ambiguity(self) -> tuple[str, ...] | None:
        """Return a sentence with two derivations, or None.

        Searches pairs of templates in parallel: a state is the number of slots each has filled,
        and whether the two derivations differ yet. The number of states is small, so the search
        covers all sentences, regardless of their number.
        """
        for first, second in itertools.combinations_with_replacement(self.templates, 2):
            words = _common_sentence(first, second)
            if words is not None:
                return words
        return None


def _common_sentence(first: Template, second: Template) -> tuple[str, ...] | None:
    """Return a sentence that both templates derive (if they are the same, in two ways), or None."""
    start = (0, 0, first is not second)
    end = (len(first.slots), len(second.slots), True)
    paths: dict[tuple[int, int, bool], tuple[str, ...]] = {start: ()}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        for word, following in _steps(first, second, *state):
            if following not in paths:
                paths[following] = paths[state] + ((word,) if word else ())
                queue.append(following)
    return paths.get(end)


def _steps(
    first: Template, second: Template, i: int, j: int, differ: bool
) -> Iterator[tuple[str, tuple[int, int, bool]]]:
    """Yield the states that follow a pair of positions, each with its word.

    Either one derivation leaves a slot empty, or both fill a slot with the same word. Two
    derivations of one template are the same as long as they fill the same slots.
    """
    a = first.slots[i] if i < len(first.slots) else {}
    b = second.slots[j] if j < len(second.slots) else {}
    if "" in a:
        yield "", (i + 1, j, differ)
    if "" in b:
        yield "", (i, j + 1, differ)
    if shared := (a.keys() & b.keys()) - {""}:
        # Any shared word will do, since all lead to the same state.
        yield min(shared), (i + 1, j + 1, differ or i != j)


def _entropy(probabilities: Iterable[float]) -> float:
    return -math.fsum(p * math.log(p) for p in probabilities)
