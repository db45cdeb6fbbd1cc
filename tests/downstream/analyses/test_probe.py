from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bilm.errors import BilmError
from downstream.analyses.probe import main, most_frequent_tags, read_words, word_vectors
from downstream.texts.conllu import TaggedSentence
from tests.downstream.topic_task import embedder, golden_bilm


def write_conllu(path: Path, count: int, seed: int) -> Path:
    """`run` is a noun after `the` and a verb after `they`: only its context tells."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(count):
        noun = rng.random() < 0.5
        words = [("the", "DET"), ("run", "NOUN")] if noun else [("they", "PRON"), ("run", "VERB")]
        words.append((str(rng.choice([".", "!"])), "PUNCT"))
        for i, (word, tag) in enumerate(words, 1):
            lines.append("\t".join([str(i), word, word, tag, *["_"] * 6]))
        lines.append("")
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("probe")
    golden_bilm().save_pretrained(directory / "model")
    write_conllu(directory / "train.conllu", 200, 0)
    write_conllu(directory / "test.conllu", 80, 1)
    return directory


def flags(place: Path, output: str, *more: str) -> list[str]:
    return [
        *("--model", str(place / "model"), "--train", str(place / "train.conllu")),
        *("--test", str(place / "test.conllu"), "--output", str(place / output), *more),
    ]


def test_context_is_in_the_lstms_and_not_in_the_words(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(flags(place, "page", "--strength", "100"))
    tree = json.loads((place / "page" / "results.json").read_text("utf-8"))
    accuracy = {name: scores["accuracy"] for name, scores in tree["scores"].items()}
    assert tree["words"] == {"train": 600, "test": 240}
    by_word = accuracy["most frequent tag of the word"]
    assert accuracy["layer 0 (words alone)"] == pytest.approx(by_word, abs=1e-9)
    assert 0.75 < by_word < 0.9
    assert accuracy["layer 1"] == 1.0
    assert accuracy["layer 2"] == 1.0
    assert (place / "page" / "probe.png").read_bytes().startswith(b"\x89PNG")
    assert "| layer 1" in capsys.readouterr().out


def test_vectors_are_those_of_the_embedder(place: Path) -> None:
    sentences = read_words(place / "train.conllu", "upos", 10, seed=0)
    assert sum(len(sentence.words) for sentence in sentences) == 9  # whole sentences only
    model = embedder(place)
    expected = np.concatenate(model.embed([s.words for s in sentences]), axis=1)
    np.testing.assert_allclose(word_vectors(model, sentences, True), expected, atol=1e-6)


def test_sentences_are_drawn_from_the_whole_file(tmp_path: Path) -> None:
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


def test_a_new_word_gets_the_most_frequent_tag() -> None:
    train = [TaggedSentence(("a", "b", "A", "a"), ("X", "Y", "Z", "Z"))]
    test = [TaggedSentence(("a", "B", "new"), ("X", "X", "X"))]
    assert list(most_frequent_tags(train, test)) == ["Z", "Y", "Z"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--max-words", "0"], "--max-words is 0"),
        (["--seed", "-1"], "--seed is -1"),
        (["--strength", "-1"], "--strength is -1"),
        (["--strength", "nan"], "--strength is nan"),
        (["--tags", "xpos"], "has one value of xpos only, '_'"),
        (["--train", "nowhere.conllu"], "cannot read nowhere.conllu: No such file"),
    ],
)
def test_mistakes_are_told(place: Path, more: list[str], message: str) -> None:
    with pytest.raises(BilmError, match=message):
        main(flags(place, "mistake", *more))
