from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from bilm.errors import CorpusError
from downstream.texts.documents import read_documents

GOOD = {
    "doc": "one",
    "genre": "news",
    "sentences": [["She", "said", "she"], ["left", "."]],
    "clusters": [[[2, 2], [0, 0]], [[1, 2]]],
    "licence": "ignored",
}


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_reads_documents_with_optional_fields(tmp_path: Path) -> None:
    speakers = [["A", "A", "B"], ["B", "B"]]
    other = {"doc_key": "two", "sentences": GOOD["sentences"], "clusters": [], "speakers": speakers}
    path = write(tmp_path / "a.jsonl", GOOD, other, {"sentences": [["x"]], "clusters": []})
    one, two, three = read_documents(path).documents
    assert one.words == ("She", "said", "she", "left", ".")
    assert one.clusters == (((0, 0), (2, 2)), ((1, 2),))
    assert one.has_singletons
    assert (one.name, one.genre, one.speakers, one.line) == ("one", "news", None, 1)
    assert (two.name, two.genre, two.speakers) == ("two", None, ("A", "A", "B", "B", "B"))
    assert (three.name, three.line) == ("line 3", 3)
    assert read_documents(path).place(two) == f"{path}, line 2"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clusters": [[[0, 5]]]}, r"the mention \[0, 5\] is outside .* 5 words .* 0 to 4"),
        ({"clusters": [[[-1, 0]]]}, r"the mention \[-1, 0\] is outside the document"),
        (
            {"clusters": [[[2, 3]]]},
            r"the mention \[2, 3\] starts in the sentence 0 and ends in .* 1;",
        ),
        ({"clusters": [[[2, 1]]]}, r"the mention \[2, 1\] starts after its end"),
        (
            {"clusters": [[[0, 0]], [[1, 1], [0, 0]]]},
            r"the mention \[0, 0\] is in the clusters 0 and 1",
        ),
        (
            {"clusters": [[[0, 0], [1, 1], [0, 0]]]},
            r"cluster 0 contains the mention \[0, 0\] twice",
        ),
        ({"clusters": [[[0, 0]], []]}, "cluster 1 has no mentions"),
        ({"clusters": [[[0, 1.5]]]}, "the mention .* is not a pair of integers"),
        ({"clusters": [[[True, 1]]]}, "the mention .* is not a pair of integers"),
        ({"clusters": [[[0, 1, 2]]]}, r"a mention is \[0, 1, 2\]; expected \[first word"),
        ({"clusters": [[0, 1]]}, "a mention is 0; expected"),
        ({"clusters": {}}, "clusters is {}; expected a list of lists"),
        ({"clusters": [7]}, r"clusters is \[7\]; expected a list of lists"),
        ({"sentences": []}, r"sentences is \[\]; expected a list of sentences that is not empty"),
        ({"sentences": "a b"}, "sentences is 'a b'"),
        ({"sentences": [["a"], []]}, r"sentence 1 is \[\]; expected a list of words"),
        ({"sentences": [["a", " "]]}, "sentence 0 contains ' '"),
        ({"sentences": [["a\ud800"]]}, "sentence 0 contains a NUL or an unpaired surrogate"),
        ({"doc": 7}, "doc is 7; expected a string"),
        ({"genre": ["x"]}, r"genre is \['x'\]; expected a string"),
        ({"speakers": [["A"]]}, "speakers does not have one list per sentence"),
        ({"speakers": [["A", 1, "B"], ["A", "B"]]}, "a speaker is not a string"),
    ],
)
def test_rejects_bad_documents_with_file_and_line(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = write(tmp_path / "bad.jsonl", GOOD, {**GOOD, **changes})
    with pytest.raises(CorpusError, match=f"bad.jsonl, line 2: {message}"):
        read_documents(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"sentences": [["a"]]}', "line 1 has no field 'clusters'"),
        ('{"clusters": []}', "line 1 has no field 'sentences'"),
        ("[]", "line 1 is .*expected a JSON object"),
        ("{", "line 1 is not a JSON object"),
        ('{"clusters": [], "clusters": []}', "a key is duplicated"),
    ],
)
def test_rejects_lines_that_are_not_documents(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text + "\n", "utf-8")
    with pytest.raises(CorpusError, match=message):
        read_documents(path)


def test_rejects_a_file_without_documents(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="has no documents; expected one JSON object per line"):
        read_documents(write(tmp_path / "empty.jsonl"))
    message = r"has no documents; expected `#begin document \(NAME\); part 000`"
    with pytest.raises(CorpusError, match=message):
        read_documents(write(tmp_path / "empty.conll"))


def test_rejects_documents_with_the_same_name(tmp_path: Path) -> None:
    path = write(tmp_path / "bad.jsonl", GOOD, {**GOOD, "doc": "two"}, GOOD)
    message = "bad.jsonl, line 3: the document has the name 'one', and so has that of line 1"
    with pytest.raises(CorpusError, match=message):
        read_documents(path)
    (tmp_path / "bad.conll").write_text(CONLL + CONLL, "utf-8")
    with pytest.raises(CorpusError, match=r"line 12: the document has the name .* part 001'"):
        read_documents(tmp_path / "bad.conll")


def row(word: str, mark: str, speaker: str = "-") -> str:
    return f"bc/x 0 0 {word} NN * - - - {speaker} * {mark}\n"


CONLL = (
    "#begin document (bc/x/00/x_0000); part 001\n"
    + row("She", "(0)", "Ann")
    + row("saw", "-", "Ann")
    + row("her", "(1|(0)", "Ann")
    + row("cat", "1)", "Ann")
    + "\n"
    + row("It", "(1)", "Bob")
    + row("(", "(2|(3)", "Bob")
    + row("x", "2)", "Bob")
    + "\n#end document\n"
)


def test_reads_columns_of_conll_2012(tmp_path: Path) -> None:
    for name in ("a.conll.gz", "a.v4_gold_conll.gz"):
        path = tmp_path / name
        path.write_bytes(gzip.compress((CONLL + CONLL.replace("part 001", "part 002")).encode()))
        one, two = read_documents(path).documents
        assert one.sentences == (("She", "saw", "her", "cat"), ("It", "(", "x"))
        assert one.clusters == (((0, 0), (2, 2)), ((2, 3), (4, 4)), ((5, 5),), ((5, 6),))
        assert one.name == "bc/x/00/x_0000; part 001"
        assert two.name == "bc/x/00/x_0000; part 002"
        assert one.genre == "bc"
        assert one.speakers == ("Ann",) * 4 + ("Bob",) * 3
        assert (one.line, two.line) == (1, 12)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (" 1)\n", " 4)\n", "line 5: 4\\) closes a mention that is not open"),
        (" 1)\n", " -\n", "line 4: the mention of cluster 1 that starts here is not closed"),
        (" 1)\n", " 1\n", "line 5: the coreference column contains '1'"),
        (" 1)\n", " (1x\n", "line 5: the coreference column contains '\\(1x'"),
        ("NN * - -", "NN", "line 2 has 9 columns; CoNLL-2012 has at least 12"),
        ("#begin", "#start", "line 1 is outside of a document"),
        ("#end document\n", "", "the document of line 1 has no `#end document`"),
        ("#end document\n", "#begin document (y); part 000\n", "line 11 begins a document before"),
        ("(1)", "(0)|(1)", None),
    ],
)
def test_rejects_bad_columns_with_file_and_line(
    tmp_path: Path, old: str, new: str, message: str | None
) -> None:
    path = tmp_path / "bad.conll"
    path.write_text(CONLL.replace(old, new), "utf-8")
    with pytest.raises(CorpusError, match=message or r"line 7: .* is in the clusters 0 and 1"):
        read_documents(path)


def test_rejects_a_document_without_words(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("#begin document (x); part 000\n\n#end document\n", "utf-8")
    with pytest.raises(CorpusError, match="line 3 ends a document without words"):
        read_documents(path, "conll")
