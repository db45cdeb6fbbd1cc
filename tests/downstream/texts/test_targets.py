from __future__ import annotations

import json
from pathlib import Path

import pytest

from bilm.errors import CorpusError
from downstream.texts.labelled import TextColumns
from downstream.texts.targets import read_label_sets, read_numbers

COLUMNS = TextColumns()


def write(path: Path, content: str) -> Path:
    path.write_text(content, encoding="utf-8")
    return path


def test_reads_label_sets(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\na,x|y\nb,\nc, y \nd,z| x\n")
    data = read_label_sets(path, COLUMNS, "|")
    assert data.texts == ("a", "b", "c", "d")
    assert data.targets == (("x", "y"), (), ("y",), ("z", "x"))
    assert read_label_sets(path, COLUMNS, ";").targets[0] == ("x|y",)


def test_reads_label_sets_from_json(tmp_path: Path) -> None:
    rows = [
        {"text": "a", "label": ["x", "y"]},
        {"text": "b", "label": []},
        {"text": "c", "label": 3},
        {"text": "d", "label": "y|x"},
    ]
    path = write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert read_label_sets(path, COLUMNS, "|").targets == (("x", "y"), (), ("3",), ("y", "x"))


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ('"x||y"', r"line 2: the labels 'x\|\|y' contain an empty label"),
        ('"x|"', "line 2: the labels .* contain an empty label"),
        ('["x", " "]', "line 2: the labels .* contain an empty label"),
        ('"x|y|x"', "line 2: the labels .* contain 'x' twice"),
        ('["x|y"]', r"line 2: the label 'x\|y' contains '\|', which separates labels"),
        ("1.5", "line 2: the label is 1.5; expected a string, an integer, or a list"),
        ("[[]]", r"line 2: the label is \[\]"),
        ("null", "line 2: the label is None"),
    ],
)
def test_rejects_invalid_label_sets(tmp_path: Path, label: str, message: str) -> None:
    good = '{"text": "a", "label": "x"}\n'
    path = write(tmp_path / "a.jsonl", f'{good}{{"text": "b", "label": {label}}}\n')
    with pytest.raises(CorpusError, match=rf"a\.jsonl, {message}"):
        read_label_sets(path, COLUMNS, "|")


def test_reads_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\na,1\nb,-2.5e1\nc, .5\n")
    assert read_numbers(path, COLUMNS).targets == (1.0, -25.0, 0.5)
    path = write(tmp_path / "a.jsonl", '{"text": "a", "label": 1.5}\n{"text": "b", "label": 2}\n')
    assert read_numbers(path, COLUMNS).targets == (1.5, 2.0)
    assert read_numbers(write(tmp_path / "a.txt", "3.5 a text\n"), COLUMNS).targets == (3.5,)


@pytest.mark.parametrize(
    "label", ["good", "", "nan", "inf", "1e31", "1,5", "1_0", "\u0663", "0x1", "."]
)
def test_rejects_labels_that_are_not_numbers(tmp_path: Path, label: str) -> None:
    path = write(tmp_path / "a.tsv", f"text\tlabel\na\t1\nb\t{label}\n")
    with pytest.raises(CorpusError, match=rf"a\.tsv, line 3: the label is '{label}'; .* number"):
        read_numbers(path, COLUMNS)


def test_rejects_booleans_as_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "a", "label": true}\n')
    with pytest.raises(CorpusError, match="line 1: the label is True"):
        read_numbers(path, COLUMNS)
