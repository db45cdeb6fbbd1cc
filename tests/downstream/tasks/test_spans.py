from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bilm.errors import CorpusError
from downstream.settings.spans import SpanSettings
from downstream.tasks.span_scores import AnsweredQuestion, MeanScores, score_spans
from downstream.tasks.spans import SpanTask, read_span_task
from tests.downstream.span_task import passages, write_lines


def task(directory: Path, records: list[Any], **data: Any) -> SpanTask:
    train = write_lines(directory / "train.jsonl", records)
    test = data.pop("test", None) or write_lines(directory / "test.jsonl", passages(4, 9))
    head = data.pop("head", {})
    settings = {
        "output": "o",
        "mix": {"kinds": ["none"]},
        "head": head,
        "data": {"train": str(train), "test": str(test), "tokenizer": "whitespace", **data},
    }
    return read_span_task(SpanSettings.model_validate(settings, strict=False))


def texts(chosen: SpanTask, split: str) -> set[str]:
    part = chosen.splits[split]
    return {chosen.files[part.file].passages[i].text for i in part.passages}


def test_training_and_validation_passages_are_disjoint(tmp_path: Path) -> None:
    records = passages(30, 1)
    # The same context again at the end of the file, with questions of its own.
    again = {**records[0], "qas": [{**q, "id": q["id"] + "b"} for q in records[0]["qas"]]}
    chosen = task(tmp_path, [*records, again], validation_share=0.2)
    train, validation = texts(chosen, "train"), texts(chosen, "validation")
    assert train
    assert validation
    assert not train & validation
    assert train | validation == {record["context"] for record in records}
    assert len(chosen.questions("train")) + len(chosen.questions("validation")) == 62
    ids = {question.id for question in chosen.questions("train")}
    assert {q["id"] for q in again["qas"]} <= ids


def test_counts_test_passages_that_occur_in_training(tmp_path: Path) -> None:
    records = passages(10, 1)
    test = write_lines(tmp_path / "leak.jsonl", [*records[:3], *passages(5, 77)])
    others = {record["context"] for record in passages(5, 77)}
    assert not others & {record["context"] for record in records}
    chosen = task(tmp_path, records, test=str(test), validation_share=0.1)
    assert chosen.num_seen() == 3
    # The last passages are for validation, and do not count as training passages.
    chosen = task(tmp_path, records[::-1], test=str(test), validation_share=0.2)
    assert chosen.num_seen() == 1


def test_selects_training_passages_at_random(tmp_path: Path) -> None:
    chosen = task(tmp_path, passages(30, 1), train_questions=11)
    again = task(tmp_path, passages(30, 1), train_questions=11)
    assert len(chosen.questions("train")) == 12  # a passage has two questions
    assert chosen.splits == again.splits
    assert chosen.splits["train"].passages != tuple(range(6))
    assert not texts(chosen, "train") & texts(chosen, "validation")


def test_rejects_a_single_training_passage_without_validation(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="has one passage; at least two different ones"):
        task(tmp_path, passages(1, 1))


def test_counts_answers_that_are_widened(tmp_path: Path) -> None:
    records = passages(4, 1)
    for record in records[:2]:
        answer = record["qas"][0]["answers"][0]
        answer["text"] = record["context"][answer["answer_start"] :][:1]
    chosen = task(tmp_path, records, validation=str(tmp_path / "test.jsonl"))
    alignment = chosen.alignment("train")
    expected = sum(record["qas"][0]["answers"][0]["text"] != "a" for record in records[:2])
    assert (alignment.num_answers, alignment.num_widened, alignment.num_lost) == (8, expected, 0)
    assert chosen.alignment("test").num_widened == 0


def test_places_of_questions_are_those_of_the_texts(tmp_path: Path) -> None:
    chosen = task(tmp_path, passages(6, 1), validation_share=0.5)
    words = [word for text in chosen.words["train"].texts() for word in text]
    for split in ("train", "validation"):
        for question in chosen._span_questions(split):
            assert " ".join(words[question.words]) == question.text
            end = question.passage_start + len(question.passage.words)
            assert tuple(words[question.passage_start : end]) == question.passage.words
            found = [question.passage.text_of(span) for span in question.spans]
            assert tuple(found) == question.references


def test_scores_are_grouped_by_question_word() -> None:
    scores = score_spans(
        [
            AnsweredQuestion("Who?", "a cat", ("cat", "dog")),
            AnsweredQuestion("Who sat?", "the cat sat", ("cat",)),
            AnsweredQuestion("When?", "now", ("then",)),
        ]
    )
    assert scores.main == scores.f1 == pytest.approx((1 + 2 / 3) / 3)
    assert scores.exact_match == pytest.approx(1 / 3)
    assert list(scores.by_class) == ["who", "when"]
    assert scores.by_class["who"] == MeanScores(0.5, pytest.approx(5 / 6), 2)
    with pytest.raises(ValueError, match="no answers"):
        score_spans([])
