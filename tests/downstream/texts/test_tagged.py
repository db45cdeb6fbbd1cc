from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from bilm.errors import BilmError
from downstream.texts.tagged import TagReading, read_tagged

COLUMNS = """-DOCSTART- -X- -X- O

EU NNP I-NP I-ORG
rejects VBZ I-VP O

Peter NNP I-NP I-PER
Blackburn NNP I-NP I-PER
-DOCSTART- -X- -X- O
BRUSSELS NNP I-NP I-LOC
"""


def write(path: Path, text: str) -> Path:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


def test_reads_columns_and_converts_iob1(tmp_path: Path) -> None:
    file = read_tagged(write(tmp_path / "a.txt.gz", COLUMNS), TagReading(scheme="iob1"))
    assert file.sentences == (("EU", "rejects"), ("Peter", "Blackburn"), ("BRUSSELS",))
    assert [e.tags for e in file.examples] == [("B-ORG", "O"), ("B-PER", "I-PER"), ("B-LOC",)]
    assert [e.lines for e in file.examples] == [(3, 4), (6, 7), (9,)]


@pytest.mark.parametrize("separator", [" ", "\t"])
def test_a_word_that_starts_like_the_mark_of_a_document_is_a_word(
    tmp_path: Path, separator: str
) -> None:
    rows = ["a O", "-DOCSTART-x O", "-DOCSTART-: O", "b O", "-DOCSTART- O", "c O"]
    text = "".join(f"{row.replace(' ', separator)}\n" for row in rows)
    file = read_tagged(write(tmp_path / "a.txt", text), TagReading())
    assert file.sentences == (("a", "-DOCSTART-x", "-DOCSTART-:", "b"), ("c",))


def test_reads_other_columns(tmp_path: Path) -> None:
    reading = TagReading(tag_column="2", scheme="plain")
    file = read_tagged(write(tmp_path / "a.txt", COLUMNS), reading)
    assert file.examples[0].tags == ("NNP", "VBZ")
    tabs = write(tmp_path / "a.tsv", "B-X\ta b\r\nO\tc\r\n")
    file = read_tagged(tabs, TagReading(word_column=2, tag_column="1"))
    assert file.sentences == (("a b", "c"),)
    assert file.examples[0].tags == ("B-X", "O")


def test_reads_conllu(tmp_path: Path) -> None:
    rest = "\t_" * 5
    text = (
        f"# text\n1-2\tDon't\t_\t_\t_{rest}\n1\tDo\t_\tAUX\tVB{rest}\n2\tn't\t_\tPART\tRB{rest}\n"
    )
    path = write(tmp_path / "a.conllu", text)
    (example,) = read_tagged(path, TagReading()).examples
    assert (example.tags, example.lines) == (("AUX", "PART"), (3, 4))
    (example,) = read_tagged(path, TagReading(tag_column="xpos")).examples
    assert example.tags == ("VB", "RB")


@pytest.mark.parametrize(
    ("text", "reading", "message"),
    [
        ("a O\nb\n", TagReading(), r"line 2 has 1 column separated by spaces; the first line has"),
        ("a b O\na\tO\n", TagReading(), r"line 2 has columns separated by tabs, but .* by spaces"),
        ("a\tO\nb\n", TagReading(), r"line 2 has 1 column separated by tabs; the first line has"),
        ("a\tO\nb O\n", TagReading(), r"line 2 has columns separated by spaces, but .* by tabs"),
        ("a\tO\nb\tc\tO\n", TagReading(), r"line 2 has 3 columns separated by tabs"),
        ("a O\nb I-X\n", TagReading(), r"line 2: the tag 'I-X' follows 'O'"),
        ("a O\n\nb I-X\n", TagReading(), r"line 3: the tag 'I-X' starts the sentence"),
        ("a NN\n", TagReading(), r"line 1: the tag 'NN' is not O, B-TYPE or I-TYPE"),
        ("a\tO\n\t\tO\n", TagReading(), r"line 2 has 3 columns"),
        ("a\tO\n \tO\n", TagReading(), r"line 2: the word is empty"),
        ("a\tO\nb\t\n", TagReading(), r"line 2: the tag is empty"),
        ("", TagReading(), "has no sentences"),
        ("\n\n-DOCSTART- O\n", TagReading(), "has no sentences"),
        ("a O\n", TagReading(tag_column="3"), "line 1 has 2 columns, but --tag-column is 3"),
        ("a O\n", TagReading(word_column=2), "are both in column 2"),
        ("\na\n", TagReading(), "line 2 has one column; expected a word and its tag"),
        ("a O\n", TagReading(tag_column="upos"), "must be a number from 1"),
        ("1\ta\n", TagReading(file_format="conllu"), "line 1 has 2 columns .*; CoNLL-U has 10"),
        (
            "# a\n",
            TagReading(file_format="conllu"),
            "no sentences; .* 10 columns .*: ID, FORM, LEMMA",
        ),
        ("a\n", TagReading(tag_column="2"), "line 1 has 1 column, but --tag-column is 2"),
        ("1\ta" + "\t_" * 8, TagReading(file_format="conllu"), "line 1 has no tag in the column"),
        ("", TagReading(file_format="conllu", tag_column="4"), "use one of upos, xpos"),
        ("a\0 O\n", TagReading(), "line 1 contains a NUL byte"),
    ],
)
def test_rejects_bad_input_with_file_and_line(
    tmp_path: Path, text: str, reading: TagReading, message: str
) -> None:
    path = write(tmp_path / "bad.txt", text)
    with pytest.raises(BilmError, match=message) as caught:
        read_tagged(path, reading)
    assert "bad.txt" in str(caught.value) or "--tag-column" in str(caught.value)
