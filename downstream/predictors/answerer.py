"""`QuestionAnswerer`: a trained head that finds the answers to questions in raw passages.

On disk, it consists of `answerer.json` and `head.safetensors`. The biLM and the word vectors are
not copied: their paths and digests are recorded, and other files are rejected. Questions about the
same context share its representations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bilm.embedding.sentence_batches import windows
from bilm.text.tokenizers import require_tokenizer
from downstream.features.span_sources import SpanQuestion, SpanSource, SpanTargets, make_examples
from downstream.heads.answerer import (
    AnswererDescription,
    SpanPrediction,
    best_predictions,
)
from downstream.predictors.inputs import checked_pairs
from downstream.predictors.predictor import WINDOW_WORDS, WordPredictor
from downstream.settings.spans import ANSWERER_FILE
from downstream.tasks.spans import plain_tokenizer
from downstream.texts.passage_words import PassageWords, Split, question_words, tokenize_passage
from downstream.training.fit import predict


@dataclass(frozen=True)
class Answer:
    """A span of a context: `context[start:end] == text`; `score` is its probability."""

    text: str
    start: int
    end: int
    score: float


@dataclass(frozen=True)
class _Asked:
    """A passage, the words of the questions about it, and their places among all questions."""

    passage: PassageWords
    questions: list[tuple[str, ...]]
    places: list[int]

    def __len__(self) -> int:
        return len(self.passage.words) + sum(map(len, self.questions))


class QuestionAnswerer(WordPredictor[AnswererDescription]):
    """Finds the answer to a question in a context."""

    _file = ANSWERER_FILE

    @classmethod
    def _read_description(cls, directory: Path) -> AnswererDescription:
        return AnswererDescription.read(directory)

    def predict(self, pairs: Iterable[tuple[str, str]]) -> list[Answer]:
        """Return the answer to each pair of a question and its context.

        Memory is bounded by a number of words, apart from the words of all texts.
        """
        answers: dict[int, Answer] = {}
        asked_pairs = checked_pairs(pairs, ("question", "context"))
        for window in windows(self._tokenize(asked_pairs), WINDOW_WORDS):
            passages = [asked.passage for asked in window for _ in asked.places]
            places = [place for asked in window for place in asked.places]
            for place, passage, found in zip(places, passages, self._find(window), strict=True):
                start, end = passage.range_of(found.span)
                answers[place] = Answer(passage.text[start:end], start, end, found.probability)
        return [answers[i] for i in range(len(asked_pairs))]

    def _tokenize(self, pairs: Sequence[tuple[str, str]]) -> list[_Asked]:
        split, asked = self._split(), dict[str, _Asked]()
        for i, (question, context) in enumerate(pairs):
            what = f"pair {i + 1} of {len(pairs)}: the"
            if context not in asked:
                passage = tokenize_passage(context, split, f"{what} context")
                asked[context] = _Asked(passage, [], [])
            asked[context].questions.append(question_words(question, split, f"{what} question"))
            asked[context].places.append(i)
        return list(asked.values())

    def _split(self) -> Split:
        if self._inputs.embedder is None:
            return plain_tokenizer(self.description.tokenizer or "moses")
        tokenizer = self._inputs.embedder.pretrained.tokenizer
        return require_tokenizer(tokenizer, "use a model with a tokenizer").tokenize

    def _find(self, window: Sequence[_Asked]) -> list[SpanPrediction]:
        """Return the best span of each question, in the order of the passages."""
        texts: list[tuple[str, ...]] = []
        questions: list[SpanQuestion] = []
        num_words = 0
        for asked in window:
            passage_start = num_words
            texts += [*asked.passage.sentences(), *asked.questions]
            num_words += len(asked.passage.words)
            for words in asked.questions:
                place = slice(num_words, num_words + len(words))
                questions.append(SpanQuestion("", asked.passage, passage_start, place))
                num_words += len(words)
        ranges = self._read(texts)
        examples = make_examples(questions, self.description.head.max_words, for_training=False)
        targets = SpanTargets(questions, examples, self.description.head.max_words)
        predictions = predict(self._model, SpanSource(ranges, questions, examples))
        return best_predictions(predictions, targets)
