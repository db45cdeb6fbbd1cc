from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bilm.errors import BilmError, ConfigError, CorpusError
from downstream.tasks.classification import class_names, label_ids, split_validation
from downstream.texts.labelled import LabelledTexts, digest_of, read_labelled, read_texts


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode("utf-8"))
    return path


def test_csv_by_names(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'label,id,text\nx,1,"one, two"\ny,2,"three\nfour"\n')
    data = read_labelled(path)
    assert data.texts == ("one, two", "three\nfour")
    assert data.labels == ("x", "y")
    assert len(data) == 2


def test_numbers_join_columns_and_an_empty_one_is_fine(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", '"3","","only this"\n"1"," A title ","and more"\n')
    data = read_labelled(path, label_column="1", text_columns=("2", "3"))
    assert data.texts == ("only this", "A title and more")
    assert data.labels == ("3", "1")


def test_numbers_with_a_header(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "label,text\nx,one\n")
    assert len(read_labelled(path, label_column="1", text_columns=("2",))) == 2
    data = read_labelled(path, label_column="1", text_columns=("2",), header=True)
    assert data.texts == ("one",)


def test_tsv_knows_no_quotes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", 'text\tlabel\nhe said "no\tx\n')
    assert read_labelled(path).texts == ('he said "no',)


def test_jsonl_with_words_and_numbers(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"text": ["a", "b"], "label": 2}, {"text": "c", "label": "x"}]
    path = write(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    data = read_labelled(path)
    assert data.texts == ("a b", "c")
    assert data.labels == ("2", "x")


def test_plain_lines_and_other_extensions(tmp_path: Path) -> None:
    path = write(tmp_path / "stsa.fine.train", "4 a good film\n0 a bad film\n")
    with pytest.raises(CorpusError, match=r"unknown extension '.train'"):
        read_labelled(path)
    data = read_labelled(path, file_format="text")
    assert data.labels == ("4", "0")
    assert data.texts == ("a good film", "a bad film")
    assert read_texts(path, file_format="text")[0] == "4 a good film"
    tabs = read_labelled(write(tmp_path / "tabs.txt", "pos\ta good film\nneg  bad\n"))
    assert (tabs.labels, tabs.texts) == (("pos", "neg"), ("a good film", "bad"))


def test_gzip_and_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress("\ufefflabel,text\nx,é\n".encode()))
    assert read_labelled(path).texts == ("é",)
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(CorpusError, match="cut short"):
        read_labelled(path)
    path.write_bytes(b"label,text\n")
    with pytest.raises(CorpusError, match=r"cannot read .*a\.csv\.gz"):
        read_labelled(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,lable\na,b\n", r"no column 'label' in its header \['text', 'lable'\]"),
        ("text,label,text\na,b,c\n", "names 'text' more than once"),
        ("text,label\na,b\n ,c\n", "line 3: the text is empty"),
        ("text,label\na,\n", "line 2: the label is empty"),
        ("text,label\na,b,c\n", "line 2 has 3 columns, and the first row has 2"),
        ('text,label\n"a"b,c\n', "line 2 is not csv"),
        ('text,label\n"a,c\n', "line 2 is not csv: unexpected end of data"),
        ("text,label\na\0,b\n", "line 2 holds a NUL"),
        ("", "has no rows"),
        ("text,label\n", "has no rows"),
    ],
)
def test_bad_csv(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        read_labelled(write(tmp_path / "a.csv", content))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1]", "a JSON object is expected"),
        ("{", "line 1 is not a JSON object"),
        ('{"text": "a"}', r"no field 'label'; its fields are \['text'\]"),
        ('{"text": 1, "label": "x"}', "field 'text' is 1"),
        ('{"text": "a", "label": 1.5}', "label is 1.5"),
        ('{"text": "a", "label": true}', "label is True"),
        ('{"text": "a\\u0000", "label": "x"}', "NUL"),
        ('{"text": "a", "text": "b", "label": "x"}', "stands twice"),
    ],
)
def test_bad_jsonl(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        read_labelled(write(tmp_path / "a.jsonl", line + "\n"))


def test_not_text_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"text,label\n\xff\xfe,x\n")
    with pytest.raises(CorpusError, match="not UTF-8: 0xff"):
        read_labelled(path)
    with pytest.raises(CorpusError, match="there is no file"):
        read_labelled(tmp_path / "b.csv")
    with pytest.raises(CorpusError, match="is a directory"):
        read_labelled(tmp_path)


@pytest.mark.parametrize(
    ("label", "texts", "message"),
    [
        ("1", ("2", "2"), "name one twice"),
        ("1", ("4",), "has no column 4"),
        ("1", ("0",), "has no column 0"),
        ("1", (), "column's name is empty"),
        ("a", ("1",), "name one twice"),
    ],
)
def test_bad_columns(tmp_path: Path, label: str, texts: tuple[str, ...], message: str) -> None:
    path = write(tmp_path / "a.csv", "a,b,c\nd,e,f\n")
    with pytest.raises(BilmError, match=message):
        read_labelled(path, label_column=label, text_columns=texts)


def test_classes_sort_as_numbers_or_words() -> None:
    assert class_names(LabelledTexts(("a",) * 3, ("10", "9", "2"))) == ("2", "9", "10")
    assert class_names(LabelledTexts(("a",) * 3, ("b", "10", "a"))) == ("10", "a", "b")
    with pytest.raises(CorpusError, match="one class only"):
        class_names(LabelledTexts(("a", "b"), ("1", "1")))


def test_labels_that_training_never_saw() -> None:
    data = LabelledTexts(("a", "b", "c"), ("x", "new", "new"), "test.csv")
    with pytest.raises(CorpusError, match=r"test.csv has labels .* 'new' \(2 times\)"):
        label_ids(data, ("x", "y"))
    assert label_ids(data.subset([0]), ("y", "x")).tolist() == [1]


def test_split_keeps_the_shares_of_classes() -> None:
    labels = np.array([0] * 80 + [1] * 19 + [2])
    train, validation = split_validation(labels, 0.1, seed=3)
    assert sorted([*train, *validation]) == list(range(100))
    assert np.bincount(labels[validation]).tolist() == [8, 2]
    assert 99 in train
    again = split_validation(labels, 0.1, seed=3)[1]
    np.testing.assert_array_equal(validation, again)
    assert (split_validation(labels, 0.1, seed=4)[1] != validation).any()
    with pytest.raises(ConfigError, match="share"):
        split_validation(labels, 1.0, 0)
    with pytest.raises(CorpusError, match="every class has one text only"):
        split_validation(np.array([0, 1]), 0.5, 0)


def test_digest_depends_on_borders_between_texts() -> None:
    assert digest_of(["ab", "c"]) != digest_of(["a", "bc"])
    assert LabelledTexts(("a",), ("x",)).digest() == LabelledTexts(("a",), ("y",)).digest()


def test_a_line_without_end(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"label,text\n") + gzip.compress(b"x" * (1 << 20)) * 20)
    with pytest.raises(CorpusError, match="line 2 has more than 16,777,216"):
        read_labelled(path)
