"""Extractive question answering: passages, questions, and answers that are spans of a passage.

The validation split, if it has no file, consists of the last passages of the training file, so that
all questions about a passage are in the same split. Answers are aligned with words; those that
start or end inside a word are widened to the whole word, and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bilm.text.tokenizers import MosesTokenizer, WhitespaceTokenizer, require_tokenizer
from downstream.settings.spans import (
    PlainTokenizer,
    SpanDataSettings,
    SpanHeadSettings,
    SpanSettings,
)
from downstream.tasks.span_scores import AnsweredQuestion, SpanScores, score_spans
from downstream.tasks.splits import SPLITS, first_for_validation, paths_of, too_few
from downstream.texts.passage_words import Split as SplitWords
from downstream.texts.passage_words import TokenizedFile, tokenize_file
from downstream.texts.passages import PassageFile, PassageReading, Question, read_passages

if TYPE_CHECKING:
    from downstream.features.batches import Examples
    from downstream.features.span_sources import SpanQuestion, SpanTargets
    from downstream.heads.answerer import AnswererDescription, SpanPrediction
    from downstream.heads.saved_head import HeadInputs
    from downstream.tasks.task import Features, Inputs


@dataclass(frozen=True)
class PassageSplit:
    """A split: the name of its file, and the indices of its passages."""

    file: str
    passages: tuple[int, ...]


@dataclass(frozen=True)
class Alignment:
    """The numbers of reference answers, of those that were widened, and of those without words."""

    num_answers: int
    num_widened: int
    num_lost: int


@dataclass(frozen=True)
class SpanTask:
    """The passages of each file by its name, their words, and the splits."""

    files: dict[str, PassageFile]
    words: dict[str, TokenizedFile]
    splits: dict[str, PassageSplit]

    def questions(self, split: str) -> list[Question]:
        """Return the questions of a split."""
        part = self.splits[split]
        passages = self.files[part.file].passages
        return [question for i in part.passages for question in passages[i].questions]

    def inputs(self, settings: SpanSettings) -> Inputs:
        """Return the sentences of all passages and all questions as words."""
        from downstream.features.texts_to_layers import UNLIMITED_WORDS, TextReading
        from downstream.tasks.task import Inputs

        texts = {name: file.texts() for name, file in self.words.items()}
        return Inputs(texts, TextReading(True, UNLIMITED_WORDS), "words")

    def examples(self, settings: SpanSettings, features: Features) -> dict[str, Examples]:
        """Return the windows of passages and the answers of each split."""
        from downstream.features.batches import Examples
        from downstream.features.plain_words import PlainWords
        from downstream.features.span_sources import SpanSource
        from downstream.features.word_ranges import WordRanges

        result = {}
        for name in SPLITS:
            targets = self.targets(name, settings.head)
            file_name = self.splits[name].file
            file, table = features.files[file_name], features.tables.get(file_name)
            has_characters = settings.head.reads_characters(not isinstance(file, PlainWords))
            words = WordRanges(file, table, has_characters)
            source = SpanSource(words, targets.questions, targets.examples)
            result[name] = Examples(source, targets)
        return result

    def targets(self, split: str, head: SpanHeadSettings) -> SpanTargets:
        """Return the questions of a split, their answers, and the windows of their passages."""
        from downstream.features.span_sources import SpanTargets, make_examples

        questions = self._span_questions(split)
        examples = make_examples(questions, head.max_words, for_training=split == "train")
        return SpanTargets(questions, examples, head.max_words)

    def _span_questions(self, split: str) -> list[SpanQuestion]:
        """Return the questions of a split with their words and answers.

        Training questions whose answers are not among the words are left out.
        """
        from downstream.features.span_sources import SpanQuestion

        part = self.splits[split]
        file, words = self.files[part.file], self.words[part.file]
        passage_starts = np.cumsum([0, *(len(passage.words) for passage in words.passages)])
        lengths = [len(question) for questions in words.questions for question in questions]
        starts = int(passage_starts[-1]) + np.cumsum([0, *lengths])
        first_questions = np.cumsum([0, *map(len, words.questions)])
        result = []
        for i in part.passages:
            for k, question in enumerate(file.passages[i].questions, int(first_questions[i])):
                aligned = [words.passages[i].align(r) for r in question.references]
                spans = dict.fromkeys(answer.span for answer in aligned if answer is not None)
                if not spans and split == "train":
                    continue
                result.append(
                    SpanQuestion(
                        question.text,
                        words.passages[i],
                        int(passage_starts[i]),
                        slice(int(starts[k]), int(starts[k + 1])),
                        tuple(reference.text for reference in question.references),
                        tuple(spans),
                    )
                )
        return result

    def describe(self, settings: SpanSettings, inputs: HeadInputs) -> AnswererDescription:
        """Return the description of a head."""
        from downstream.heads.answerer import AnswererDescription

        return AnswererDescription(
            format="bilm-answerer",
            version=1,
            bilm=inputs.bilm,
            vectors=inputs.vectors,
            vector_dim=inputs.shape.vector_dim,
            mix_kind=inputs.mix_kind,
            mix=settings.mix,
            num_layers=inputs.shape.num_layers,
            dim=inputs.shape.dim,
            seed=inputs.seed,
            tokenizer=settings.data.tokenizer if settings.model is None else None,
            head=settings.head,
        )

    def score(
        self, targets: SpanTargets, predictions: Sequence[tuple[SpanPrediction, ...]]
    ) -> SpanScores:
        """Compare the text of the predicted spans with the reference answers."""
        from downstream.heads.answerer import best_predictions

        best = best_predictions(predictions, targets)
        answers = [
            AnsweredQuestion(q.text, q.passage.text_of(prediction.span), q.references)
            for q, prediction in zip(targets.questions, best, strict=True)
        ]
        return score_spans(answers)

    def alignment(self, split: str) -> Alignment:
        """Return how well the answers of a split agree with the words of its passages."""
        part = self.splits[split]
        file, words = self.files[part.file], self.words[part.file]
        aligned = [
            words.passages[i].align(reference)
            for i in part.passages
            for question in file.passages[i].questions
            for reference in question.references
        ]
        found = [answer for answer in aligned if answer is not None]
        num_widened = sum(answer.is_widened for answer in found)
        return Alignment(len(aligned), num_widened, len(aligned) - len(found))

    def num_seen(self) -> int:
        """Return the number of test passages that also occur in the training split."""
        train, test = self.splits["train"], self.splits["test"]
        seen = {self.files[train.file].passages[i].text for i in train.passages}
        return sum(self.files[test.file].passages[i].text in seen for i in test.passages)


def read_span_task(settings: SpanSettings) -> SpanTask:
    """Read and check all passages, and split them into words."""
    data = settings.data
    reading = PassageReading(data.format, data.skip_unanswerable)
    files = {name: read_passages(path, reading) for name, path in paths_of(data).items()}
    splits = split_passages(files, data, settings.train.seed)
    split = _tokenizer_of(settings)
    words = {name: tokenize_file(file, split) for name, file in files.items()}
    return SpanTask(files, words, splits)


def split_passages(
    files: dict[str, PassageFile], data: SpanDataSettings, seed: int
) -> dict[str, PassageSplit]:
    """Return the splits; without a validation file, the last training passages are used for it."""
    splits = {
        name: PassageSplit(name, tuple(range(len(file.passages)))) for name, file in files.items()
    }
    if data.validation is None:
        train = files["train"]
        num_passages = len(train.passages)
        if num_passages < 2:
            raise too_few(train.path, num_passages, "passage")
        first = first_for_validation(num_passages, data.validation_share)
        splits["train"] = PassageSplit("train", tuple(range(first)))
        splits["validation"] = PassageSplit("train", tuple(range(first, num_passages)))
    if data.train_questions is not None:
        chosen = _select(files["train"], splits["train"].passages, data.train_questions, seed)
        splits["train"] = PassageSplit("train", chosen)
    return {name: splits[name] for name in SPLITS}


def _select(
    file: PassageFile, passages: Sequence[int], num_questions: int, seed: int
) -> tuple[int, ...]:
    """Return random passages, the first that have `num_questions` questions, in their order."""
    chosen: list[int] = []
    count = 0
    for i in np.random.default_rng(seed).permutation(passages).tolist():
        if count >= num_questions:
            break
        chosen.append(i)
        count += len(file.passages[i].questions)
    return tuple(sorted(chosen))


def _tokenizer_of(settings: SpanSettings) -> SplitWords:
    """Return the tokenizer of the biLM, or the chosen one without a biLM."""
    if settings.model is None:
        return plain_tokenizer(settings.data.tokenizer)
    from bilm.pretrained.model_directory import PretrainedBiLm

    tokenizer = PretrainedBiLm.open(settings.model).tokenizer
    return require_tokenizer(tokenizer, "use a model with a tokenizer", settings.model).tokenize


def plain_tokenizer(name: PlainTokenizer) -> SplitWords:
    """Return the tokenizer of heads without a biLM."""
    return (MosesTokenizer() if name == "moses" else WhitespaceTokenizer()).tokenize
