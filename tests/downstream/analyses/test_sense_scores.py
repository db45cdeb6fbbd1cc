from __future__ import annotations

import pytest

from downstream.analyses.sense_scores import Answers, SenseScores
from downstream.texts.senses import Lemma, SenseInstance


def answers() -> Answers:
    gold = [("NOUN", ("a", "b")), ("NOUN", ("c",)), ("VERB", ("d",)), ("VERB", ("e",))]
    instances = [SenseInstance(0, 0, 1, Lemma("x", pos), keys) for pos, keys in gold]
    keys = {"one": ["b", "c", "x", None], "two": ["a", "x", "d", None]}
    return Answers(instances, keys, [False, False, False, True], [True, True, False, False])


def test_scores() -> None:
    scores = answers().scores()
    assert scores["one"] == SenseScores(num_instances=4, num_answered=3, num_correct=2)
    assert scores["one"].precision == pytest.approx(2 / 3)
    assert scores["one"].recall == pytest.approx(1 / 2)
    expected = 2 * (2 / 3) * (1 / 2) / (2 / 3 + 1 / 2)
    assert scores["one"].f1 == pytest.approx(expected)
    assert scores["one"].as_json()["f1"] == pytest.approx(expected)


def test_scores_without_answers_are_zero() -> None:
    scores = SenseScores(0, 0, 0)
    assert (scores.precision, scores.recall, scores.f1) == (0, 0, 0)


def test_counts_and_parts_of_speech() -> None:
    assert answers().counts() == {
        "instances": 4,
        "lemma_in_training": 3,
        "sense_in_training": 2,
        "first_sense": 0,
        "without_answer": 1,
    }
    assert answers().parts_of_speech() == ["NOUN", "VERB"]
    nouns = answers().of_pos("NOUN").scores()
    assert (nouns["one"].num_correct, nouns["two"].num_correct) == (2, 1)


def test_joins_sets() -> None:
    together = Answers.join([answers(), answers().of_pos("VERB")])
    assert together.scores()["two"] == SenseScores(6, 4, 3)
    assert together.counts()["without_answer"] == 2


def test_counts_answers_that_only_one_has_correct() -> None:
    assert answers().only_correct() == {"one": {"two": 1}, "two": {"one": 1}}
    assert answers().of_pos("NOUN").only_correct() == {"one": {"two": 1}, "two": {"one": 0}}
