from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from downstream.features.plain_words import PlainWords, WordLayersFile
from downstream.features.span_sources import (
    SpanQuestion,
    SpanSource,
    SpanTargets,
    make_examples,
)
from downstream.features.word_ranges import WordRanges
from downstream.heads.answerer import (
    AnswererDescription,
    AnswererModel,
    Outputs,
    SpanPrediction,
    best_predictions,
    best_spans,
)
from downstream.heads.saved_head import FileRecord
from downstream.settings.common import MixSettings
from downstream.settings.spans import SpanHeadSettings
from downstream.texts.passage_words import WordSpan, tokenize_passage

CONTEXTS = ["the cat sat on the mat", "a", "one dog ran"]
QUESTIONS = [["who sat", "where"], ["what is it now"], ["who ran"]]


def description(**changes: Any) -> AnswererDescription:
    head = {
        "encoder_dim": 5,
        "span_dim": 4,
        "character_filters": 6,
        "dropout": 0.0,
        **changes.pop("head", {}),
    }
    fields: dict[str, Any] = {
        "format": "bilm-answerer",
        "version": 1,
        "bilm": FileRecord(path="", digest=""),
        "vectors": None,
        "vector_dim": 4,
        "mix_kind": "trainable",
        "mix": MixSettings(),
        "num_layers": 3,
        "dim": 6,
        "seed": 0,
        "tokenizer": None,
        "head": SpanHeadSettings.model_validate(head),
    }
    return AnswererDescription(**{**fields, **changes})


def model(**changes: Any) -> AnswererModel:
    torch.manual_seed(0)
    return description(**changes).build().eval()


def examples(max_words: int = 400) -> tuple[SpanSource, SpanTargets]:
    passages = [tokenize_passage(text, str.split, "the context") for text in CONTEXTS]
    texts = [words for passage in passages for words in passage.sentences()]
    questions, start, place = [], 0, sum(len(text) for text in texts)
    for passage, asked in zip(passages, QUESTIONS, strict=True):
        for text in asked:
            words = text.split()
            texts.append(tuple(words))
            span = slice(place, place + len(words))
            answer = WordSpan(0, min(1, len(passage.words) - 1))
            answers = (passage.text_of(answer),)
            questions.append(SpanQuestion(text, passage, start, span, answers, (answer,)))
            place += len(words)
        start += len(passage.words)
    file = PlainWords.of_texts(texts)
    rng = np.random.default_rng(0)
    layers = rng.standard_normal((len(file.word_ids), 3, 6)).astype(np.float32)
    table = rng.standard_normal((len(file.types), 4)).astype(np.float32)
    words_of = WordRanges(WordLayersFile(file, layers), table, characters=True)
    made = make_examples(questions, max_words, for_training=False)
    return SpanSource(words_of, questions, made), SpanTargets(questions, made, max_words)


CASES: list[dict[str, Any]] = [
    {},
    {"mix_kind": "none"},
    {"head": {"elmo_at": "both", "characters": True}},
    {"head": {"elmo_at": "output"}},
]


@pytest.mark.parametrize("changes", CASES)
def test_padding_does_not_change_the_outputs(changes: dict[str, Any]) -> None:
    net, (source, targets) = model(**changes), examples()
    order = np.array([2, 0, 1])
    together = net(source.batch(order))
    losses = net._losses(together, targets.batch(order))
    row = 0
    for i in order:
        alone = net(source.batch(np.array([i])))
        count, width = alone.first.shape
        for ours, theirs in ((alone.first, together.first), (alone.last, together.last)):
            torch.testing.assert_close(ours, theirs[row : row + count, :width])
            assert (theirs[row : row + count, width:] == -math.inf).all()
        loss = net._losses(alone, targets.batch(np.array([i])))
        torch.testing.assert_close(loss, losses[row : row + count])
        row += count
    assert row == len(losses)


@pytest.mark.parametrize("changes", CASES)
def test_every_parameter_gets_a_gradient(changes: dict[str, Any]) -> None:
    net, (source, targets) = model(**changes).train(), examples()
    outputs = net(source.batch(np.arange(3)))
    (net.loss(outputs, targets.batch(np.arange(3))) + net.regularization()).backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        # The score of the last word does not change if a constant is added to all scores.
        if not name.endswith(("first.bias", "last.bias")):
            assert parameter.grad.abs().sum() > 0, name
        assert torch.isfinite(parameter.grad).all(), name
    places = {"input", "output"} if changes.get("head", {}).get("elmo_at") == "both" else None
    if places:
        assert set(net.mixes) == places


def test_a_question_does_not_depend_on_the_other_questions_about_its_passage() -> None:
    net, (source, _) = model(), examples()
    batch = source.batch(np.array([0]))
    both = net(batch)
    swapped = source.batch(np.array([0]))
    asked = swapped.others["questions"]
    swapped.others["questions"].layers.copy_(asked.layers.flip(1))
    assert asked.vectors is not None
    assert asked.mask is not None
    asked.vectors.copy_(asked.vectors.flip(0))
    asked.mask.copy_(asked.mask.flip(0))
    swapped.extras["is_asked"].copy_(swapped.extras["is_asked"].flip(0))
    torch.testing.assert_close(net(swapped).first, both.first.flip(0))
    assert not torch.allclose(both.first[0], both.first[1])


@pytest.mark.parametrize("max_words", [1, 2, 3, 7, 50])
def test_decoding_equals_brute_force(max_words: int) -> None:
    rng = np.random.default_rng(max_words)
    first, last = torch.from_numpy(rng.standard_normal((2, 40, 7)))
    first[::3, :4], last[::3, 5:] = -math.inf, -math.inf  # words that cannot start or end a span
    last[0] = torch.tensor([-math.inf] * 4 + [0.0] + [-math.inf] * 2)
    spans, sums = best_spans(first, last, max_words)
    for row in range(40):
        candidates = {
            (i, j): float(first[row, i] + last[row, j])
            for i in range(7)
            for j in range(i, min(7, i + max_words))
        }
        best = max(candidates.values())
        assert sums[row] == pytest.approx(best)
        assert candidates[tuple(spans[row].tolist())] == pytest.approx(best)


def test_loss_is_that_of_all_answers_together() -> None:
    net = model()
    first, last = torch.randn(2, 2, 4, generator=torch.Generator().manual_seed(0))
    outputs = Outputs(first, last, torch.tensor([0, 0]), torch.tensor([0]))
    spans = torch.tensor([[[0, 1], [2, 3]], [[1, 1], [-1, -1]]])
    p, q = first.softmax(dim=1), last.softmax(dim=1)
    expected = [-(p[0, 0] * q[0, 1] + p[0, 2] * q[0, 3]).log(), -(p[1, 1] * q[1, 1]).log()]
    torch.testing.assert_close(net._losses(outputs, spans), torch.stack(expected))
    predictions = net.decode(outputs, torch.full_like(spans, -1))
    assert [p.loss for window in predictions for p in window] == [None, None]
    [first_span, _] = predictions[0]
    assert first_span.probability == pytest.approx(
        max(float(p[0, i] * q[0, j]) for i in range(4) for j in range(i, 4))
    )


def test_predictions_are_places_in_the_passage_and_the_best_window_counts() -> None:
    net, (source, targets) = model(), examples(max_words=4)
    batch = source.batch(np.arange(len(source)))
    predictions = net.decode(net(batch), targets.batch(np.arange(len(source))))
    assert [len(window) for window in predictions] == [len(e.questions) for e in targets.examples]
    for example, window in zip(targets.examples, predictions, strict=True):
        assert all(example.window.contains(prediction.span) for prediction in window)
    best = best_predictions(predictions, targets)
    assert len(best) == 4
    in_windows = [predictions[0][0], predictions[1][0]]  # of the first question
    assert best[0] == max(in_windows, key=lambda prediction: prediction.score)
    evaluation = net.evaluate(predictions, targets)
    losses = [p.loss for window in predictions for p in window if p.loss is not None]
    assert len(losses) == 4  # the answers are at the start of the passages
    assert evaluation.loss == pytest.approx(np.mean(losses))


def test_evaluation_is_the_mean_f1() -> None:
    net, (_, targets) = model(), examples()
    spans = [WordSpan(0, 1), WordSpan(1, 2), WordSpan(0, 0), WordSpan(2, 2)]
    rows = [SpanPrediction(span, 1.0, 0.0, 1.0) for span in spans]
    predictions = [(rows[0], rows[1]), (rows[2],), (rows[3],)]
    # "the cat" is right, "cat sat" has one of two words of "cat", "a" has no words, "ran" is wrong
    assert net.evaluate(predictions, targets).accuracy == pytest.approx((1 + 2 / 3) / 4)


def test_counts_right_spans_by_window() -> None:
    net = model()
    first = torch.eye(3)
    outputs = Outputs(first, first, torch.tensor([0, 0, 1]), torch.tensor([0, 0]))
    spans = torch.tensor([[[0, 0]], [[0, 1]], [[2, 2]]])
    assert net.count_correct(outputs, spans).item() == pytest.approx(1.5)
