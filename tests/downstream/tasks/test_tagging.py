from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bilm.errors import CorpusError
from downstream.settings.tagging import SequenceDataSettings
from downstream.tasks.tagging import make_tagging
from downstream.texts.tagged import TaggedExample, TaggedFile


def file(path: str, *rows: str, per_sentence: int = 1) -> TaggedFile:
    """Return a file with one sentence per row of tags; its words are numbered."""
    sentences = tuple(
        tuple(f"{path}{i}.{k}" for k in range(len(r.split()))) for i, r in enumerate(rows)
    )
    examples = tuple(
        TaggedExample(i, tuple(row.split()), tuple(range(1, len(row.split()) + 1)))
        for i, row in enumerate(rows)
        for _ in range(per_sentence)
    )
    return TaggedFile(path, sentences, examples)


def data(**changes: Any) -> SequenceDataSettings:
    return SequenceDataSettings(train="train", test="test", **changes)


def test_labels_are_those_of_training() -> None:
    files = {"train": file("train", "B-X O", "B-Y", "O"), "test": file("test", "I-Y B-X")}
    task = make_tagging(files, data(validation_share=0.3), is_bio=True)
    assert task.labels == ("O", "B-X", "I-X", "B-Y", "I-Y")
    plain = {"train": file("train", "N V", "N", "N"), "test": file("test", "V")}
    assert make_tagging(plain, data(validation_share=0.3), is_bio=False).labels == ("N", "V")


def test_labels_of_the_validation_split_are_not_training_labels() -> None:
    files = {"train": file("train", "B-X", "O", "B-Z"), "test": file("test", "O")}
    message = (
        r"train, line 1: the label 'B-Z' does not occur in the training split \(the first 2 "
        r"different sentences of train\); .* pass --validation, or pass --unknown-labels keep"
    )
    with pytest.raises(CorpusError, match=message):
        make_tagging(files, data(validation_share=0.3), is_bio=True)
    files["validation"], files["train"] = files["train"], file("train", "B-X", "O")
    with pytest.raises(CorpusError, match="'B-Z' does not occur in the training file; "):
        make_tagging(files, data(validation="validation"), is_bio=True)
    files = {"train": file("train", "B-X", "O", "B-Z"), "test": file("test", "O")}
    task = make_tagging(files, data(validation_share=0.3, unknown_labels="keep"), is_bio=True)
    assert "B-Z" not in task.labels


def test_splits_are_disjoint_and_keep_the_examples_of_a_sentence_together() -> None:
    rows = ["B-X O"] * 10
    files = {"train": file("train", *rows, per_sentence=3), "test": file("test", "O")}
    task = make_tagging(files, data(validation_share=0.25), is_bio=True)
    train, validation = task.splits["train"], task.splits["validation"]
    assert (len(train), len(validation)) == (24, 6)
    assert not {e.sentence for e in train.examples} & {e.sentence for e in validation.examples}
    assert task.words("validation", 0) == ("train8.0", "train8.1")


@pytest.mark.parametrize("own_file", [False, True])
def test_predicate_words_are_predicates_in_half_of_their_occurrences(own_file: bool) -> None:
    sentences = (
        ("They", "Run", "a", "run"),  # a predicate once in two occurrences
        ("Walk", "and", "walk"),
        ("walk",),  # without a predicate: "walk" is one in three occurrences
        ("tea", "sits"),
        ("they", "sleep"),  # the validation split, without a file of its own
    )
    places = ((0, 1), (1, 0), (3, 1), (4, 1))
    examples = []
    for i, k in places:
        tags = ["O"] * len(sentences[i])
        tags[k] = "B-V"
        examples.append(TaggedExample(i, tuple(tags), (i + 1,) * len(tags), k))
    files = {"train": TaggedFile("train", sentences, tuple(examples)), "test": file("test", "O")}
    if own_file:
        files["validation"] = file("validation", "O")
    settings = data(validation="validation") if own_file else data(validation_share=0.25)
    task = replace(make_tagging(files, settings, is_bio=True), has_predicates=True)
    assert task.predicate_words() == (("run", "sits", "sleep") if own_file else ("run", "sits"))


def test_equal_sentences_are_in_the_same_split() -> None:
    words = [(name,) for name in "abcaabdbcc"]
    examples = tuple(TaggedExample(i, ("B-X",), (i + 1,)) for i in range(len(words)))
    train = TaggedFile("train", tuple(words), examples)
    task = make_tagging({"train": train, "test": file("test", "O")},
                        data(validation_share=0.5, unknown_labels="keep"), is_bio=True)  # fmt: skip
    sentences = {s: [task.words(s, i)[0] for i in range(len(task.splits[s]))] for s in task.splits}
    assert "".join(sentences["train"]) == "abaabb"
    assert "".join(sentences["validation"]) == "cdcc"
    assert task.num_seen("validation") == 0
    same = TaggedFile("train", (("a",),) * 3, examples[:3])
    with pytest.raises(CorpusError, match="has 3 sentences, which are all equal; at least"):
        make_tagging({"train": same, "test": train}, data(), is_bio=True)


def test_counts_test_sentences_that_occur_in_training() -> None:
    train = file("a", "B-X", "O", "O O")
    files = {"train": train, "test": TaggedFile("b", train.sentences, train.examples)}
    assert make_tagging(files, data(validation_share=0.3), is_bio=True).num_seen("test") == 2


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["O", "O"], "only one label, 'O'; at least"),
        (["B-X"], "has one sentence; at least two"),
    ],
)
def test_rejects_files_without_enough_data(rows: list[str], message: str) -> None:
    files = {"train": file("train", *rows), "test": file("test", "O")}
    with pytest.raises(CorpusError, match=message):
        make_tagging(files, data(), is_bio=True)
