from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bilm.errors import CorpusError
from downstream.texts.roles import read_roles

GOOD = {"tokens": ["a", "b"], "predicates": [{"index": 1, "tags": ["B-ARG0", "B-V"]}], "id": "x"}


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_reads_one_example_per_predicate(tmp_path: Path) -> None:
    empty = {"tokens": ["c"], "predicates": []}
    two = {**GOOD, "predicates": [*GOOD["predicates"], {"index": 0, "tags": ["B-V", "O"]}]}  # type: ignore[misc]
    file = read_roles(write(tmp_path / "a.jsonl", GOOD, empty, two))
    assert file.sentences == (("a", "b"), ("c",), ("a", "b"))
    assert [(e.sentence, e.predicate) for e in file.examples] == [(0, 1), (2, 1), (2, 0)]
    assert file.place(file.examples[2], 1).endswith("a.jsonl, line 3")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"tokens": ["a"]}, "line 2.* 'predicates'"),
        ({**GOOD, "tokens": []}, "line 2: tokens is .*not empty"),
        ({**GOOD, "tokens": ["a", " "]}, "line 2: tokens contains ' '"),
        ({**GOOD, "tokens": ["a", "b\tc"]}, r"line 2: tokens contains 'b\\tc'; .* a tab"),
        ({**GOOD, "tokens": ["a", "b\ud800"]}, "line 2: tokens contains a NUL or an unpaired"),
        (
            {**GOOD, "predicates": [{"index": 0, "tags": ["B-V", "B-\0"]}]},
            "line 2: a tag of the predicate at 0 contains a NUL or an unpaired",
        ),
        ({**GOOD, "tokens": "a b"}, "line 2: tokens is 'a b'"),
        ({**GOOD, "predicates": {}}, "line 2: predicates is {}"),
        (
            {**GOOD, "predicates": [{"index": 2, "tags": []}]},
            "line 2: the index .* is 2; .* 0 to 1",
        ),
        ({**GOOD, "predicates": [{"index": True, "tags": []}]}, "line 2: the index .* is True"),
        ({**GOOD, "predicates": [{"index": 0}]}, "line 2: the tags of a predicate are not a list"),
        (
            {**GOOD, "predicates": [{"index": 0, "tags": ["O"]}]},
            "line 2: .* has 1 tag for 2 words",
        ),
        (
            {**GOOD, "predicates": [{"index": 0, "tags": ["O", "I-V"]}]},
            "line 2: the predicate at 0: the tag 'I-V' follows 'O'.* or I-V. Correct it$",
        ),
        (
            {**GOOD, "predicates": [{"index": 0, "tags": ["NN", "B-V"]}]},
            "line 2: the predicate at 0: the tag 'NN' is not O, B-TYPE or I-TYPE. Correct it$",
        ),
        (
            {**GOOD, "predicates": [{"index": 0, "tags": ["O", "B-V"]}]},
            "line 2: the predicate at 0 has the tag 'O'; it must be B-V",
        ),
        (
            {**GOOD, "predicates": [{"index": 1, "tags": ["B-V", "I-V"]}]},
            "line 2: the predicate at 1 has the tag 'I-V'; it must be B-V",
        ),
        (
            {**GOOD, "predicates": [{"index": 1, "tags": ["B-V", "B-V"]}]},
            "line 2: the predicate at 1: the word 0 has the tag B-V too",
        ),
        (
            {**GOOD, "predicates": [{"index": 1, "tags": [t, "B-V"]} for t in ("O", "B-ARG0")]},
            "line 2: the predicate at 1 occurs twice, with different tags; remove one",
        ),
    ],
)
def test_rejects_bad_input_with_file_and_line(tmp_path: Path, row: Any, message: str) -> None:
    with pytest.raises(CorpusError, match=rf"bad\.jsonl, {message}"):
        read_roles(write(tmp_path / "bad.jsonl", GOOD, row))


def test_accepts_predicates_of_several_words(tmp_path: Path) -> None:
    tags = (("B-V", "I-V", "B-ARG1"), ("B-V", "B-ARG1", "B-C-V"))
    rows = [{"tokens": ["a", "b", "c"], "predicates": [{"index": 0, "tags": t}]} for t in tags]
    file = read_roles(write(tmp_path / "a.jsonl", *rows))
    assert tuple(example.tags for example in file.examples) == tags


def test_keeps_a_predicate_that_is_listed_twice_with_the_same_tags(tmp_path: Path) -> None:
    row = {**GOOD, "predicates": [*GOOD["predicates"]] * 2}  # type: ignore[misc]
    one, two = read_roles(write(tmp_path / "a.jsonl", row)).examples
    assert one == two


def test_rejects_file_without_predicates(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="has no predicates"):
        read_roles(write(tmp_path / "bad.jsonl", {"tokens": ["a"], "predicates": []}))
    (tmp_path / "bad.jsonl").write_text("[1]\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"bad\.jsonl, line 1"):
        read_roles(tmp_path / "bad.jsonl")
