"""The grammar of the demo corpus: four topics, ambiguous words, and long-distance agreement.

A model needs context for it, because
- *bank*, *bat*, *light*, *play*, *spring* and others belong to several topics and parts of speech;
- a verb agrees with its subject across a prepositional phrase or a relative clause that may contain
  a noun of the other number;
- in about a quarter of the sentences (`CONTRASTS`) all content words are shared by two topics, and
  only their order determines the topic, so a bag of words is not sufficient.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from data_tools.demo.grammar import Grammar, Slot, Template

Words = tuple[str, ...]

Slots = tuple[Slot, ...]

Variants = list[tuple[float, Slots]]


def _words(text: str) -> Words:
    return tuple(text.split())


SINGULAR, PLURAL = "singular", "plural"

NUMBERS = {SINGULAR: 0.6, PLURAL: 0.4}

CONTRAST_SHARE = 0.24

DETERMINERS = {
    SINGULAR: {"the": 0.4, "this": 0.2, "one": 0.15, "every": 0.15, "that": 0.1},
    PLURAL: {"the": 0.4, "these": 0.2, "some": 0.15, "many": 0.15, "those": 0.1},
}

PREPOSITIONS = _words("near behind beside above with without")

# Words by decreasing probability; many are in more than one list, to be ambiguous.
NOUNS = {
    "money": _words(
        """bank bond note share market trader interest loan fund price order broker stock
        merger draft deposit budget record client charge investor current balance spring dollar
        rate option debt profit firm"""
    ),
    "sport": _words(
        """player match bat coach pitch goal score team court fan ring club referee light
        keeper record runner draw field wave striker title bowl key season trainer post racket
        league order"""
    ),
    "nature": _words(
        """river bank tree spring bat bark wave thorn current light bird plant fox storm crane
        stone seal fall ring field shell draft root cloud bee hill trunk meadow charge note"""
    ),
    "music": _words(
        """note singer record score band key play bow pitch drum organ light horn chord tune
        choir violin ring scale draft bar concert trumpet beat bark audience cello order spring
        fan"""
    ),
}

# The verbs of each kind differ between topics, so every sentence has exactly one topic; but most of
# them are also nouns, and many are transitive in one topic and intransitive in another.
TRANSITIVE = {
    "money": _words("buy sell price fund charge trade value share lend draft audit owe"),
    "sport": _words("beat coach bat watch train pass field bowl challenge match mark tackle"),
    "nature": _words("shade feed plant seal shelter cross light cover follow ring surround chase"),
    "music": _words("play record score tune conduct note hear rehearse pitch praise scale compose"),
}

INTRANSITIVE = {
    "money": _words("rise bank recover profit slow dip close climb"),
    "sport": _words("win train run bat lose jump sprint dive"),
    "nature": _words("grow fall spring bark rest drift wave bloom"),
    "music": _words("play ring beat sing fade march swell hum"),
}

ADJECTIVES = {
    "money": _words("current light sound new risky foreign large cheap safe public heavy spare"),
    "sport": _words("fast light fair strong young national heavy keen local quick sound tall"),
    "nature": _words("light wild still green old cold quiet current deep bright dry tall"),
    "music": _words("light sound sharp flat slow loud still bright quiet grand soft modern"),
}

ADVERBS = {
    "money": _words("steadily sharply again lately slightly fast still abroad"),
    "sport": _words("fast again well still hard badly fairly together"),
    "nature": _words("still slowly again early quietly everywhere fast deep"),
    "music": _words("softly flat again loudly still together slowly well"),
}

# Two topics have the same words in opposite order: the group of the first noun sets the topic.
FIRST_GROUP = _words("bank match note score key record draft order")

SECOND_GROUP = _words("bat spring light pitch wave current bark ring")

CONTRASTS = {
    ("money", "nature"): _words("shift lift stop"),
    ("sport", "music"): _words("turn move change"),
}


def demo_grammar(max_words: int | None = None) -> Grammar:
    """Return the grammar; `max_words` shortens every list of words, for brute-force checks."""
    templates: list[Template] = []
    share = (1 - CONTRAST_SHARE) / len(NOUNS)
    for topic in NOUNS:
        for weight, variants in _Shapes(topic, max_words).all():
            templates += [Template(topic, share * weight * p, slots) for p, slots in variants]
    share = CONTRAST_SHARE / (2 * len(CONTRASTS))
    for (first, second), verbs in CONTRASTS.items():
        orders = {first: (FIRST_GROUP, SECOND_GROUP), second: (SECOND_GROUP, FIRST_GROUP)}
        for topic, (subjects, objects) in orders.items():
            variants = _contrast(verbs[:max_words], subjects[:max_words], objects[:max_words])
            templates += [Template(topic, share * p, slots) for p, slots in variants]
    return Grammar(templates)


class _Shapes:
    """The shapes of the sentences of one topic, each shown by an example."""

    def __init__(self, topic: str, max_words: int | None) -> None:
        self._nouns = NOUNS[topic][:max_words]
        self._transitive = TRANSITIVE[topic][:max_words]
        self._intransitive = INTRANSITIVE[topic][:max_words]
        self._adjectives = ADJECTIVES[topic][:max_words]
        self._adverbs = ADVERBS[topic][:max_words]
        self._prepositions = PREPOSITIONS[:max_words]

    def all(self) -> list[tuple[float, Variants]]:
        """Return the shapes with their weights, each in all numbers of its two noun phrases."""
        shapes = [
            (0.35, self._plain),
            (0.25, self._distant),
            (0.2, self._relative),
            (0.2, self._clauses),
        ]
        return [(weight, _in_all_numbers(shape)) for weight, shape in shapes]

    def _plain(self, subject: str, other: str) -> Slots:
        """the old bank funds these loans"""
        verb = _verb(self._transitive, subject)
        return (*self._noun_phrase(subject, 0.5), verb, *self._noun_phrase(other, 0.5))

    def _distant(self, subject: str, other: str) -> Slots:
        """the bank near these brokers rises again"""
        between = (zipf(self._prepositions), *self._noun_phrase(other, 0.2))
        ending = (_verb(self._intransitive, subject), zipf(self._adverbs))
        return (*self._noun_phrase(subject, 0.2), *between, *ending)

    def _relative(self, subject: str, other: str) -> Slots:
        """the bank that funds these brokers rises again"""
        clause = ({"that": 1.0}, _verb(self._transitive, subject), *self._noun_phrase(other, 0.2))
        ending = (_verb(self._intransitive, subject), _optional(self._adverbs, 0.5))
        return (*self._noun_phrase(subject, 0.0), *clause, *ending)

    def _clauses(self, subject: str, other: str) -> Slots:
        """when these brokers fall , the bank rises again"""
        first = (*self._noun_phrase(other, 0.0), _verb(self._intransitive, other))
        ending = (_verb(self._intransitive, subject), zipf(self._adverbs))
        return ({"when": 1.0}, *first, {",": 1.0}, *self._noun_phrase(subject, 0.2), *ending)

    def _noun_phrase(self, number: str, adjective: float) -> Slots:
        nouns = zipf(_inflect(self._nouns, number == PLURAL))
        adjectives = (_optional(self._adjectives, adjective),) if adjective else ()
        return (DETERMINERS[number], *adjectives, nouns)


def _contrast(verbs: Words, subjects: Words, objects: Words) -> Variants:
    """the bank shifts the springs (the subject determines the topic)"""

    def shape(subject: str, other: str) -> Slots:
        return (
            DETERMINERS[subject],
            zipf(_inflect(subjects, subject == PLURAL)),
            _verb(verbs, subject),
            DETERMINERS[other],
            zipf(_inflect(objects, other == PLURAL)),
        )

    return _in_all_numbers(shape)


def _in_all_numbers(shape: Callable[[str, str], Slots]) -> Variants:
    return [
        (NUMBERS[subject] * NUMBERS[other], shape(subject, other))
        for subject, other in itertools.product(NUMBERS, repeat=2)
    ]


def zipf(words: Words) -> Slot:
    """Return probabilities proportional to 1 / (rank + 4), which has no very rare words."""
    weights = [1 / (rank + 4) for rank in range(1, len(words) + 1)]
    return {word: weight / sum(weights) for word, weight in zip(words, weights, strict=True)}


def _optional(words: Words, probability: float) -> Slot:
    return {"": 1 - probability} | {word: probability * p for word, p in zipf(words).items()}


def _verb(verbs: Words, subject: str) -> Slot:
    return zipf(_inflect(verbs, subject == SINGULAR))


def _inflect(words: Words, with_s: bool) -> Words:
    """Append an s, as in plural nouns and third-person singular verbs, if `with_s`."""
    if not with_s:
        return words
    sibilants = ("s", "x", "ch", "sh")
    return tuple(word + ("es" if word.endswith(sibilants) else "s") for word in words)
