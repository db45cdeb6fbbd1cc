from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from bilm.errors import CorpusError
from downstream.texts.conllu import TaggedSentence, read_conllu

TEXT = """# sent_id = 1
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVB\t_\t3\taux\t_\t_
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_
2.1\tyou\tyou\tPRON\tPRP\t_\t_\t_\t_\t_
3\tplay\tplay\tVERB\tVB\t_\t0\troot\t_\t_


# sent_id = 2
1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t_\t_"""

REST = b"\t_" * 8


@pytest.mark.parametrize("name", ["a.conllu", "a.conllu.gz"])
def test_every_syntactic_word_has_one_tag(tmp_path: Path, name: str) -> None:
    opener = gzip.open if name.endswith("gz") else open
    with opener(tmp_path / name, "wt", encoding="utf-8") as file:
        file.write(TEXT)
    assert list(read_conllu(tmp_path / name)) == [
        TaggedSentence(("Do", "n't", "play"), ("AUX", "PART", "VERB")),
        TaggedSentence(("Yes",), ("INTJ",)),
    ]
    assert [s.tags for s in read_conllu(tmp_path / name, "xpos")] == [("VB", "RB", "VB"), ("UH",)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"1\tword\tNOUN\n", "line 1 has 3 columns separated by tabs; CoNLL-U has 10: ID, FORM"),
        (b"1 word\n", "line 1 has 1 column separated by tabs; CoNLL-U has 10: ID, FORM"),
        (b"2x\tword" + REST, "line 1 has the id '2x'; expected a number such as 1"),
        (b"\tword" + REST, "line 1 has the id ''; expected"),
        (b"0\tword" + REST, "line 1 has the id '0'; expected"),
        (b"1-\tword" + REST, "line 1 has the id '1-'; expected"),
        (b"1.x\tword" + REST, "line 1 has the id '1.x'; expected"),
        (b"\xd9\xa1\tword" + REST, "line 1 has the id '\u0661'; expected"),
        (b"1\t" + REST, "line 1: the column FORM is empty"),
        (b"1\tword\t_\t \t_" + b"\t_" * 5, "line 1: the column UPOS is empty"),
        (b"# a\n\xff\xfe", "line 2 is not UTF-8"),
    ],
)
def test_rejects_invalid_files(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "a.conllu").write_bytes(data)
    with pytest.raises(CorpusError, match=message):
        list(read_conllu(tmp_path / "a.conllu"))
    with pytest.raises(CorpusError, match=r"cannot read .*b\.conllu: No such file"):
        list(read_conllu(tmp_path / "b.conllu"))
