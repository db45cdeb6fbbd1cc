from __future__ import annotations

from pathlib import Path

import pytest

from bilm.errors import CorpusError
from bilm.text.lines import LineReader
from downstream.texts.asked import AskedQuestion, read_asked


def test_reads_all_forms_of_questions(tmp_path: Path) -> None:
    lines = [
        '{"context": "a cat", "question": "Who?"}',
        '{"context": "a cat", "question": "Whose?", "id": "q1"}',
        '{"context": "a\u2028mat", "questions": ["Where?", "What?"], "title": 3}',
        '{"context": "a cat", "qas": [{"id": "7", "question": "Who?"}, {"question": "How?"}]}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines), "utf-8")
    assert read_asked(LineReader(tmp_path / "a.jsonl")) == [
        AskedQuestion("Who?", "a cat"),
        AskedQuestion("Whose?", "a cat", "q1"),
        AskedQuestion("Where?", "a\u2028mat"),
        AskedQuestion("What?", "a\u2028mat"),
        AskedQuestion("Who?", "a cat", "7"),
        AskedQuestion("How?", "a cat"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no questions"),
        ('{"context": "a", "questions": []}', "has no questions"),
        ("x", "line 1 is not valid JSON"),
        ("3", "line 1 is 3; expected a JSON object"),
        ('{"question": "a"}', "line 1 has no field 'context'"),
        ('{"context": ""}', "line 1: the context is empty"),
        ('{"context": "a"}', "line 1 has no question; expected one of the fields question"),
        ('{"context": "a", "question": "b", "qas": []}', "line 1 has question and qas"),
        ('{"context": "a", "question": " "}', "line 1: the question is empty"),
        ('{"context": "a", "question": "b", "id": 1}', "line 1: the id is 1; expected a string"),
        ('{"context": "a", "questions": "b"}', "line 1: questions is 'b'; expected a list"),
        ('{"context": "a", "questions": [3]}', r"line 1: questions\[0\]: the question is 3"),
        ('{"context": "a", "qas": [{}]}', r"line 1: qas\[0\] has no field 'question'"),
    ],
)
def test_rejects_bad_lines(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.jsonl").write_text(text, "utf-8")
    with pytest.raises(CorpusError, match=message):
        read_asked(LineReader(tmp_path / "a.jsonl"))
