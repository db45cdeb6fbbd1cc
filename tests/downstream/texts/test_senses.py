from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bilm.errors import CorpusError
from downstream.texts.senses import Lemma, SenseInstance, read_first_senses, read_senses

INSTANCE = {"start": 1, "end": 1, "lemma": "bank", "pos": "NOUN", "keys": ["bank%1:14:00::"]}
GOOD = {"id": "x", "tokens": ["the", "bank"], "instances": [INSTANCE]}


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_reads_instances(tmp_path: Path) -> None:
    empty = {"tokens": ["yes"], "instances": []}
    file = read_senses(write(tmp_path / "a.jsonl", GOOD, empty, GOOD))
    assert file.sentences == (("the", "bank"), ("yes",), ("the", "bank"))
    assert [file.place(i) for i in file.instances] == [f"{file.path}, line {n}" for n in (1, 3)]
    key = ("bank%1:14:00::",)
    assert file.instances == (
        SenseInstance(0, 1, 2, Lemma("bank", "NOUN"), key),
        SenseInstance(2, 1, 2, Lemma("bank", "NOUN"), key),
    )


def test_token_with_spaces_or_underscores_is_several_words(tmp_path: Path) -> None:
    tokens = ["it", "took_place", "_", "in", "New York City", "today"]
    places = [(1, 1), (4, 4), (1, 5), (5, 5)]
    instances = [{**INSTANCE, "start": start, "end": end} for start, end in places]
    file = read_senses(
        write(tmp_path / "a.jsonl", {**GOOD, "tokens": tokens, "instances": instances})
    )
    assert file.sentences == (("it", "took", "place", "_", "in", "New", "York", "City", "today"),)
    assert [(i.start, i.end) for i in file.instances] == [(1, 3), (5, 8), (1, 9), (8, 9)]


def changed(**fields: Any) -> dict[str, Any]:
    return {**GOOD, "instances": [{**INSTANCE, **fields}]}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"tokens": ["a"]}, "line 2.* 'instances'"),
        ({**GOOD, "tokens": ["a", ""]}, "line 2: tokens contains ''"),
        ({**GOOD, "tokens": ["a\0"]}, "line 2: tokens contains a NUL or an unpaired surrogate"),
        (changed(lemma="\ud800"), "line 2: the lemma of an instance contains a NUL or an unp"),
        (changed(keys=["\ud800"]), "line 2: the keys of 'bank' contains a NUL or an unpaired"),
        ({**GOOD, "instances": {}}, "line 2: instances is {}"),
        ({**GOOD, "instances": [7]}, "line 2: an instance is 7"),
        (changed(start=2), "line 2: the start of an instance is 2; .* from 0 to 1"),
        (changed(end=True), "line 2: the end of an instance is True"),
        (changed(end=0), "line 2: an instance has the start 1 and the end 0"),
        (changed(lemma=""), "line 2: the lemma of an instance is ''"),
        (changed(pos=None), "line 2: the pos of an instance is None"),
        (changed(keys=[]), r"line 2: the keys of 'bank' is \[\]"),
        (changed(keys=[3]), "line 2: the keys of 'bank' contains 3"),
    ],
)
def test_rejects_bad_input_with_file_and_line(tmp_path: Path, row: Any, message: str) -> None:
    with pytest.raises(CorpusError, match=rf"bad\.jsonl, {message}"):
        read_senses(write(tmp_path / "bad.jsonl", GOOD, row))


def test_rejects_file_without_instances(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="has no instances"):
        read_senses(write(tmp_path / "bad.jsonl", {**GOOD, "instances": []}))


def test_reads_first_senses(tmp_path: Path) -> None:
    lines = [
        "bank%1:14:00:: 08420278 2 20",
        "bank%1:17:01:: 09213565 1 25",
        "bank%2:40:00:: 02343595 1 2",
        "big%5:00:01:important:00 00001 1 3",
        "100%%1:00:00:: 00002 1 0",
    ]
    path = tmp_path / "index.sense"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert read_first_senses(path) == {
        Lemma("bank", "NOUN"): "bank%1:17:01::",
        Lemma("bank", "VERB"): "bank%2:40:00::",
        Lemma("big", "ADJ"): "big%5:00:01:important:00",
        Lemma("100%", "NOUN"): "100%%1:00:00::",
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("bank%1:14:00:: 1 1", "line 2 is 'bank"),
        ("bank 1 1 1", "line 2 is 'bank 1"),
        ("bank%9:14:00:: 1 1 1", "line 2 is 'bank%9"),
        ("bank%1:14:00:: 1 one 1", "line 2 is 'bank"),
    ],
)
def test_rejects_bad_sense_index(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "index.sense"
    path.write_text(f"bank%1:17:01:: 1 1 25\n{line}\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=rf"index\.sense, {message}"):
        read_first_senses(path)
