from __future__ import annotations

from itertools import pairwise

import numpy as np

from downstream.features.plain_words import PlainWords, WordLayersFile
from downstream.features.span_sources import (
    MAX_QUESTIONS_PER_EXAMPLE,
    NO_SPAN,
    SpanExample,
    SpanQuestion,
    SpanSource,
    SpanTargets,
    Window,
    make_examples,
    windows_of,
)
from downstream.features.word_ranges import WordRanges
from downstream.texts.passage_words import PassageWords, WordSpan, tokenize_passage


def passage(num_words: int) -> PassageWords:
    return tokenize_passage(" ".join(f"w{i}" for i in range(num_words)), str.split, "the context")


def question(words: PassageWords, *spans: tuple[int, int], start: int = 0) -> SpanQuestion:
    return SpanQuestion("", words, start, slice(0, 1), (), tuple(WordSpan(*s) for s in spans))


def test_windows_cover_a_passage_and_overlap_by_half() -> None:
    assert windows_of(5, 5) == [Window(0, 5)]
    assert windows_of(6, 5) == [Window(0, 5), Window(1, 6)]
    for num_words in range(1, 60):
        for max_words in range(2, 12):
            windows = windows_of(num_words, max_words)
            assert windows[0].start == 0
            assert windows[-1].stop == num_words
            assert all(w.stop - w.start == min(max_words, num_words) for w in windows)
            steps = [b.start - a.start for a, b in pairwise(windows)]
            assert all(0 < step <= (max_words + 1) // 2 for step in steps)


def test_questions_about_a_passage_share_examples() -> None:
    short, other = passage(4), passage(3)
    questions = [question(short, (0, 0))] * (MAX_QUESTIONS_PER_EXAMPLE + 1)
    questions.append(question(other, (1, 1), start=4))
    examples = make_examples(questions, 10, for_training=True)
    assert [len(e.questions) for e in examples] == [MAX_QUESTIONS_PER_EXAMPLE, 1, 1]
    assert [i for e in examples for i in e.questions] == list(range(len(questions)))
    assert [e.window for e in examples] == [Window(0, 4), Window(0, 4), Window(0, 3)]


def test_training_reads_only_windows_with_an_answer() -> None:
    words = passage(10)
    questions = [question(words, (9, 9)), question(words, (0, 1), (5, 6)), question(words)]
    examples = make_examples(questions, 4, for_training=True)
    assert examples == [
        SpanExample(Window(0, 4), (1,)),
        SpanExample(Window(4, 8), (1,)),
        SpanExample(Window(6, 10), (0,)),
    ]
    targets = SpanTargets(questions, examples, 4)
    assert targets.batch(np.array([2, 1])).tolist() == [[[3, 3]], [[1, 2]]]
    every = make_examples(questions, 4, for_training=False)
    assert [e.window for e in every] == windows_of(10, 4)
    assert all(e.questions == (0, 1, 2) for e in every)
    spans = SpanTargets(questions, every, 4).batch(np.array([0]))
    assert spans.tolist() == [[[NO_SPAN, NO_SPAN]], [[0, 1]], [[NO_SPAN, NO_SPAN]]]


def test_an_answer_longer_than_all_windows_is_cut_off() -> None:
    questions = [question(passage(10), (3, 9))]
    examples = make_examples(questions, 4, for_training=True)
    assert examples == [SpanExample(Window(2, 6), (0,))]
    assert SpanTargets(questions, examples, 4).batch(np.array([0])).tolist() == [[[1, 3]]]


def test_batches_have_the_words_of_windows_and_questions() -> None:
    words = tokenize_passage("a b c d e", lambda text: [*text.split(), "\u2581"], "the context")
    texts = [words.words, ("x",), ("D", "b")]
    file = PlainWords.of_texts(texts)
    layers = np.arange(len(file.word_ids), dtype=np.float32).reshape(-1, 1, 1)
    ranges = WordRanges(WordLayersFile(file, layers), layers[:, 0], characters=True)
    places = [slice(6, 7), slice(7, 9)]
    questions = [SpanQuestion("", words, 0, place) for place in places]
    examples = make_examples(questions, 4, for_training=False)
    batch = SpanSource(ranges, questions, examples).batch(np.array([1, 0]))
    assert batch.layers[0, :, :, 0].tolist() == [[2, 3, 4, 5], [0, 1, 2, 3]]
    assert batch.vectors is not None
    assert batch.vectors[:, :, 0].tolist() == [[2, 3, 4, 5], [0, 1, 2, 3]]
    asked = batch.others["questions"]
    assert asked.layers[0, :, :, 0].tolist() == [[6, 0], [7, 8], [6, 0], [7, 8]]
    assert batch.extras["window_of"].tolist() == [0, 0, 1, 1]
    assert batch.extras["starts"].tolist() == [2, 0]
    assert batch.extras["is_answerable"].tolist() == [[True, True, True, False], [True] * 4]
    nothing = [False] * 4
    # The second question contains d and b; the windows are "c d e" with a mark, and "a b c d".
    assert batch.extras["is_asked"].tolist() == [
        nothing,
        [False, True, False, False],
        nothing,
        [False, True, False, True],
    ]
    assert {"characters", "character_index"} <= asked.extras.keys()
