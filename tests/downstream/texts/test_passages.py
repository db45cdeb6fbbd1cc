from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from bilm.errors import CorpusError
from downstream.texts.passages import PassageReading, Reference, read_passages
from tests.downstream.span_task import squad, write_lines

ANSWER = {"text": "cat", "answer_start": 4}


def record(**changes: Any) -> dict[str, Any]:
    """Return a valid passage with one question; `changes` concern the question."""
    question = {"id": "1", "question": "Who?", "answers": [ANSWER]}
    return {"context": "the cat sat", "qas": [{**question, **changes}], "domain": "x"}


def without(field: str) -> dict[str, Any]:
    tree = record()
    del tree["qas"][0][field]
    return tree


def test_reads_json_lines_and_squad_alike(tmp_path: Path) -> None:
    records = [record(), {"context": "on a mat", "qas": []}, record(id="2")]
    lines = write_lines(tmp_path / "a.jsonl", records)
    (tmp_path / "a.json").write_text(json.dumps(squad(records)), "utf-8")
    (tmp_path / "a.json.gz").write_bytes(gzip.compress((tmp_path / "a.json").read_bytes()))
    read = [read_passages(path, PassageReading()) for path in
            (lines, tmp_path / "a.json", tmp_path / "a.json.gz")]  # fmt: skip
    for file in read:
        [passage] = file.passages  # the first and the last have the same context
        assert passage.text == "the cat sat"
        assert [question.id for question in passage.questions] == ["1", "2"]
        assert passage.questions[0].references == (Reference("cat", 4),)
        assert file.num_questions == 2
    assert [file.passages[0].questions[1].place for file in read] == [
        f"{lines}, line 3: qas[0]",
        f"{tmp_path / 'a.json'}, data[2].paragraphs[0].qas[0]",
        f"{tmp_path / 'a.json.gz'}, data[2].paragraphs[0].qas[0]",
    ]


BAD: list[tuple[Any, str]] = [
    ({"qas": []}, "{p} has no field 'context'"),
    ({"context": "a"}, "{p} has no field 'qas'"),
    ({"context": "a", "qas": 3}, "{s}qas is 3; expected a list"),
    ({"context": " ", "qas": []}, "{p}: the context is empty"),
    ({"context": 7, "qas": []}, "{p}: the context is 7; expected a string"),
    ({"context": "a\0", "qas": []}, "{p}: the context contains a NUL"),
    ([1], r"{p} is \[1\]; expected a JSON object"),
    (without("id"), r"{s}qas\[0\] has no field 'id'"),
    (without("question"), r"{s}qas\[0\] has no field 'question'"),
    (without("answers"), r"{s}qas\[0\] has no field 'answers'"),
    (record(question="\n"), r"{s}qas\[0\]: the question is empty"),
    (record(id=""), r"{s}qas\[0\]: the id is empty"),
    (record(answers=[]), r"{s}qas\[0\] has no answer: answers is empty.*--skip-unanswerable"),
    (record(answers=[], is_impossible=True), r"{s}qas\[0\] has no answer: is_impossible is true"),
    (record(is_impossible="no"), r"{s}qas\[0\]: is_impossible is 'no'; expected a boolean"),
    (record(answers=[{"text": "cat"}]), r"{s}qas\[0\].answers\[0\] has no field 'answer_start'"),
    (record(answers=[ANSWER, {**ANSWER, "text": ""}]), r"{s}qas\[0\].answers\[1\]: the text is"),
    (
        record(answers=[{**ANSWER, "answer_start": 5}]),
        r"{s}qas\[0\].answers\[0\]: the answer 'cat' is not at its answer_start 5, where the "
        "context has 'at '; the answer occurs first at 4",
    ),
    (
        record(answers=[{"text": "dog", "answer_start": 0}]),
        r"{s}qas\[0\].answers\[0\]: .* has 'the'; the answer does not occur in the context",
    ),
    (record(answers=[{**ANSWER, "answer_start": -7}]), r"{s}qas.*answer_start is -7; expected"),
    (record(answers=[{**ANSWER, "answer_start": True}]), r"{s}qas.*answer_start is True; expected"),
]


@pytest.mark.parametrize(("tree", "message"), BAD)
def test_rejects_bad_passages_with_their_place(tmp_path: Path, tree: Any, message: str) -> None:
    good = record(id="0")
    lines = write_lines(tmp_path / "bad.jsonl", [good, tree])
    nested = tmp_path / "bad.json"
    nested.write_text(json.dumps(squad([good, tree])), "utf-8")
    for path, place, separator in (
        (lines, r"bad.jsonl, line 2", r"bad.jsonl, line 2: "),
        (nested, r"bad.json, data\[1\].paragraphs\[0\]", r"bad.json, data\[1\].paragraphs\[0\]."),
    ):
        with pytest.raises(CorpusError, match=message.format(p=place, s=separator)):
            read_passages(path, PassageReading())


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", "", "has no questions"),
        ("a.jsonl", '{"context": "a", "qas": []}\n', "has no questions"),
        ("a.jsonl", "{\n", "a.jsonl, line 1 is not valid JSON"),
        ("a.jsonl", '{"context": "a", "qas": []}\n\n{}', "a.jsonl, line 2 is empty"),
        ("a.jsonl", '{"context": "a", "context": "b"}', "line 1: the key 'context' is duplicated"),
        ("a.json", '{"data": [\n}', "a.json is not valid JSON: .* at line 2"),
        ("a.json", "[]", r"a.json is \[\]; expected a JSON object"),
        ("a.json", "{}", "a.json has no field 'data'"),
        ("a.json", '{"data": [{}]}', r"a.json, data\[0\] has no field 'paragraphs'"),
        ("a.json", '{"data": 1}', "a.json, data is 1; expected a list"),
        ("a.csv", "", "neither .json nor .jsonl; pass --format"),
    ],
)
def test_rejects_bad_files(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(CorpusError, match=message):
        read_passages(tmp_path / name, PassageReading())


def test_rejects_an_id_that_occurs_twice(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [record(), record()])
    with pytest.raises(
        CorpusError, match=r"line 2: qas\[0\] has the id '1', which .*, line 1: qas"
    ):
        read_passages(path, PassageReading())


def test_leaves_out_questions_without_an_answer_if_told_to(tmp_path: Path) -> None:
    impossible = record(id="2", is_impossible=True, plausible_answers=[ANSWER], answers=[])
    path = write_lines(tmp_path / "a.txt", [record(), impossible, record(id="3", answers=[])])
    file = read_passages(path, PassageReading("jsonl", skip_unanswerable=True))
    assert [question.id for question in file.passages[0].questions] == ["1"]
    assert file.num_skipped == 2
    write_lines(path, [impossible])
    with pytest.raises(CorpusError, match="has no questions, apart from 1 without an answer"):
        read_passages(path, PassageReading("jsonl", skip_unanswerable=True))
