"""What kinds of errors a tagger makes: spans by kind of error, type, length, and words in training.

A predicted span is compared with at most one true span of the same sentence, and conversely. Pairs
with the same boundaries come first, then those of the same type, then those with more common words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from downstream.reports.pages import literal, markdown_table
from downstream.reports.plots import LENGTHS, length_name
from downstream.reports.report import class_table
from downstream.tasks.scores import ClassScores
from downstream.texts.tag_sequences import Span, f1_of, ranges_of

MISSED, SPURIOUS = "missed", "spurious"

ERROR_KINDS = {
    "wrong_type": "wrong type, right boundaries",
    "wrong_boundaries": "right type, wrong boundaries (overlap)",
    "wrong_type_and_boundaries": "wrong type, wrong boundaries (overlap)",
    MISSED: "missed",
    SPURIOUS: "spurious",
}

_MAX_MATRIX_TYPES = 12
_MAX_TYPE_PAIRS = 20


class Pair(NamedTuple):
    """A true and a predicted span that are compared; one of them may be None."""

    truth: Span | None
    predicted: Span | None

    def error(self) -> str:
        """Return the kind of the error, a key of `ERROR_KINDS`, or an empty string."""
        if self.predicted is None:
            return MISSED
        if self.truth is None:
            return SPURIOUS
        if self.truth == self.predicted:
            return ""
        if self.truth[1:] == self.predicted[1:]:
            return "wrong_type"
        is_same = self.truth.type == self.predicted.type
        return "wrong_boundaries" if is_same else "wrong_type_and_boundaries"


class Compared(NamedTuple):
    """The words of an example, its true spans and its predicted ones."""

    words: Sequence[str]
    truth: Set[Span]
    predicted: Set[Span]


class Share(NamedTuple):
    """How many of some spans or words are correct."""

    correct: int
    total: int

    @property
    def value(self) -> float:
        """The share of correct ones; 0 if there are none."""
        return self.correct / self.total if self.total else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return plain values for a JSON file."""
        return {**self._asdict(), "share": self.value}


@dataclass(frozen=True)
class SpanAnalysis:
    """The errors of spans by kind, type, length, and by whether the span is in training.

    `types` counts pairs by true and predicted type, with MISSED and SPURIOUS.
    """

    kinds: dict[str, int]
    types: dict[tuple[str, str], int]
    seen: Share
    unseen: Share
    by_length: dict[str, ClassScores]

    def as_json(self) -> dict[str, Any]:
        """Return plain values for a JSON file."""
        return {
            "errors": self.kinds,
            "types": [[*types, count] for types, count in _most_common(self.types)],
            "recall_of_spans_in_training": self.seen.as_json(),
            "recall_of_other_spans": self.unseen.as_json(),
            "by_length": {name: asdict(scores) for name, scores in self.by_length.items()},
        }


def analyze_spans(examples: Iterable[Compared], known: Collection[tuple[str, ...]]) -> SpanAnalysis:
    """Analyze the spans of examples; `known` has the training spans as `span_key` returns them."""
    kinds: Counter[str] = Counter(dict.fromkeys(ERROR_KINDS, 0))
    types: Counter[tuple[str, str]] = Counter()
    numbers = {True: [0, 0], False: [0, 0]}  # by whether the span is known: correct, all
    lengths: dict[str, Counter[str]] = {n: Counter() for n in ("correct", "predicted", "true")}
    for words, truth, predicted in examples:
        for pair in compared_pairs(truth, predicted):
            kinds.update(filter(None, [pair.error()]))
            true_type = SPURIOUS if pair.truth is None else pair.truth.type
            types[true_type, MISSED if pair.predicted is None else pair.predicted.type] += 1
        for span in truth:
            count = numbers[span_key(words, span) in known]
            count[0] += span in predicted
            count[1] += 1
        for name, spans in (("true", truth), ("predicted", predicted)):
            lengths[name].update(length_name(len(_places(span))) for span in spans)
        lengths["correct"].update(length_name(len(_places(span))) for span in truth & predicted)
    return SpanAnalysis(
        dict(kinds),
        dict(types),
        Share(*numbers[True]),
        Share(*numbers[False]),
        {
            name: _scores(*(lengths[n][name] for n in ("correct", "predicted", "true")))
            for name in LENGTHS
            if lengths["predicted"][name] or lengths["true"][name]
        },
    )


def _scores(num_correct: int, num_predicted: int, num_true: int) -> ClassScores:
    return ClassScores(
        Share(num_correct, num_predicted).value,
        Share(num_correct, num_true).value,
        f1_of(num_correct, num_predicted, num_true),
        num_true,
    )


def span_key(words: Sequence[str], span: Span) -> tuple[str, ...]:
    """Return the type and the words of a span."""
    return (span.type, *(words[i] for i in sorted(_places(span))))


def _places(span: Span) -> set[int]:
    """Return the indices of the words of a span."""
    return {i for part in ranges_of(span) for i in range(part.start, part.end)}


def compared_pairs(truth: Collection[Span], predicted: Collection[Span]) -> Iterator[Pair]:
    """Yield each span of a sentence once, with the span of the other side if there is one."""
    candidates = sorted(
        (one[1:] != two[1:], one.type != two.type, -len(_places(one) & _places(two)), one, two)
        for one in truth
        for two in predicted
        if _places(one) & _places(two)
    )
    rest_true, rest_predicted = set(truth), set(predicted)
    for *_, one, two in candidates:
        if one in rest_true and two in rest_predicted:
            rest_true.remove(one)
            rest_predicted.remove(two)
            yield Pair(one, two)
    yield from (Pair(span, None) for span in sorted(rest_true))
    yield from (Pair(None, span) for span in sorted(rest_predicted))


def span_section(analysis: SpanAnalysis) -> list[str]:
    """Return the paragraphs of a report about an analysis."""
    kinds = [[ERROR_KINDS[kind], f"{count:,}"] for kind, count in analysis.kinds.items()]
    return [
        "## Errors of spans (test)",
        "A predicted span is compared with at most one true span. The types of compared spans, "
        "also of those with other boundaries:",
        type_table(analysis.types),
        "Errors by kind; missed and spurious spans are not compared with any other:",
        markdown_table([["error", "number"], *kinds]),
        "Recall of spans that occur in the training split with the same words and the same type, "
        "and of the others:",
        _share_table(("span", "recall", "spans"), analysis.seen, analysis.unseen),
        "Scores by number of words:",
        class_table(analysis.by_length, "words of a span", "spans"),
    ]


def _share_table(heading: Sequence[str], seen: Share, unseen: Share) -> str:
    """Return a table of the shares of spans or words that are in training, and of the others."""
    shares = (("in training", seen), ("not in training", unseen))
    rows = ([name, f"{100 * own.value:.2f}", f"{own.total:,}"] for name, own in shares)
    return markdown_table([heading, *rows])


def type_table(types: dict[tuple[str, str], int]) -> str:
    """Return a matrix of true and predicted types, or the most frequent errors of many types."""
    names = sorted({name for pair in types for name in pair} - {MISSED, SPURIOUS})
    if len(names) > _MAX_MATRIX_TYPES:
        wrong = [
            (*map(literal, pair), f"{count:,}")
            for pair, count in _most_common(types)
            if pair[0] != pair[1]
        ]
        heading = ["true type", "predicted type", "spans"]
        return markdown_table([heading, *wrong[:_MAX_TYPE_PAIRS]])
    rows = [["true type", *map(literal, names), MISSED]]
    for truth in (*names, SPURIOUS):
        columns = names if truth == SPURIOUS else [*names, MISSED]
        counts = [f"{types.get((truth, name), 0):,}" for name in columns]
        rows.append([literal(truth), *counts, *["-"] * (len(names) + 1 - len(counts))])
    return markdown_table(rows)


def _most_common(types: dict[tuple[str, str], int]) -> list[tuple[tuple[str, str], int]]:
    return sorted(types.items(), key=lambda item: (-item[1], item[0]))


@dataclass(frozen=True)
class WordAnalysis:
    """The accuracy of words that are in the training split, and of the others; the macro F1."""

    seen: Share
    unseen: Share
    macro_f1: float

    def as_json(self) -> dict[str, Any]:
        """Return plain values for a JSON file."""
        return {
            "accuracy_of_words_in_training": self.seen.as_json(),
            "accuracy_of_other_words": self.unseen.as_json(),
            "macro_f1": self.macro_f1,
        }


def analyze_words(
    tagged: Iterable[tuple[str, str, str]], known: Collection[str], scores: Collection[ClassScores]
) -> WordAnalysis:
    """Analyze words with their true and predicted tags; `scores` are those of all labels."""
    numbers = {True: [0, 0], False: [0, 0]}  # by whether the word is known: correct, all
    for word, truth, predicted in tagged:
        count = numbers[word in known]
        count[0] += truth == predicted
        count[1] += 1
    macro_f1 = sum(one.f1 for one in scores) / len(scores)
    return WordAnalysis(Share(*numbers[True]), Share(*numbers[False]), macro_f1)


def word_section(analysis: WordAnalysis) -> list[str]:
    """Return the paragraphs of a report about an analysis."""
    return [
        f"Macro F1, the mean over labels: {100 * analysis.macro_f1:.2f}.",
        "Accuracy of words that occur in the training split, and of the others:",
        _share_table(("word", "accuracy", "words"), analysis.seen, analysis.unseen),
    ]
