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
        (b"1\tword\tNOUN\n", "line 1 has 3 columns; CoNLL-U has 10"),
        (b"# a\n\xff\xfe", "line 2 is not UTF-8"),
    ],
)
def test_rejects_other_files(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "a.conllu").write_bytes(data)
    with pytest.raises(CorpusError, match=message):
        list(read_conllu(tmp_path / "a.conllu"))
    with pytest.raises(CorpusError, match=r"cannot read .*b\.conllu: No such file"):
        list(read_conllu(tmp_path / "b.conllu"))
