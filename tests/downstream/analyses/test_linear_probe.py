from __future__ import annotations

from pathlib import Path

import numpy as np

from downstream.analyses.linear_probe import most_frequent_tags, read_words, word_vectors
from downstream.texts.conllu import TaggedSentence
from tests.downstream.topic_task import embedder, golden_bilm


def test_vectors_match_the_embedder(tmp_path: Path) -> None:
    golden_bilm().save_pretrained(tmp_path / "model")
    model = embedder(tmp_path)
    sentences = [
        TaggedSentence(("the", "run", "."), ("DET", "NOUN", "PUNCT")),
        TaggedSentence(("they", "run"), ("PRON", "VERB")),
    ]
    expected = np.concatenate(model.embed([s.words for s in sentences]), axis=1)
    np.testing.assert_allclose(word_vectors(model, sentences, progress=False), expected, atol=1e-6)


def test_draws_whole_sentences(tmp_path: Path) -> None:
    rows = [f"1\tw{i}\t_\tX" + "\t_" * 6 + "\n" for i in range(3)]
    (tmp_path / "a.conllu").write_text(("".join(rows) + "\n") * 9, encoding="utf-8")
    sentences = read_words(tmp_path / "a.conllu", "upos", 10, seed=0)
    assert sum(len(sentence.words) for sentence in sentences) == 9


def test_draws_sentences_from_the_whole_file(tmp_path: Path) -> None:
    rows = [f"1\tw{i}\t_\tX" + "\t_" * 6 + "\n\n" for i in range(300)]
    (tmp_path / "a.conllu").write_text("".join(rows), encoding="utf-8")
    drawn, same, other, every = (
        [int(s.words[0][1:]) for s in read_words(tmp_path / "a.conllu", "upos", count, seed)]
        for count, seed in ((30, 1), (30, 1), (30, 2), (300, 1))
    )
    assert drawn == same == sorted(drawn)
    assert drawn != other
    assert len(drawn) == 30
    assert min(drawn) < 100
    assert max(drawn) > 200
    assert every == list(range(300))


def test_unknown_word_gets_the_most_frequent_tag() -> None:
    train = [TaggedSentence(("a", "b", "A", "a"), ("X", "Y", "Z", "Z"))]
    test = [TaggedSentence(("a", "B", "new"), ("X", "X", "X"))]
    assert list(most_frequent_tags(train, test)) == ["Z", "Y", "Z"]
