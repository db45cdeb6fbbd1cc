from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bilm.errors import BilmError
from bilm.text.tokenizers import WhitespaceTokenizer
from downstream.analyses.neighbours import main
from downstream.analyses.occurrences import (
    Occurrence,
    cosines,
    find_occurrences,
    label_purities,
    occurrence_vectors,
)
from tests.downstream.topic_task import embedder, make_place

LINES = [
    "the bank near water",
    "a Bank and cash",
    "no such word",
    "the bank near water",
    "bankrupt",
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = make_place(tmp_path_factory.mktemp("neighbours"))
    (directory / "text.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return directory


def flags(place: Path, output: str, *more: str) -> list[str]:
    return [
        *("--model", str(place / "model"), "--word", "bank", "--output", str(place / output)),
        *more,
    ]


def test_occurrences_are_whole_words_of_different_sentences() -> None:
    found = find_occurrences(
        ((line, None) for line in LINES), "bank", WhitespaceTokenizer(), limit=9
    )
    assert [(o.words[o.place], o.place) for o in found] == [("bank", 1), ("Bank", 1)]
    one = find_occurrences(((line, None) for line in LINES), "bank", WhitespaceTokenizer(), 1)
    assert len(one) == 1


def test_the_word_is_marked_with_what_stands_around_it() -> None:
    assert Occurrence(("a", "bank", "b"), 1).marked() == "a [bank] b"
    long = Occurrence(tuple(map(str, range(40))), 20).marked()
    assert long.startswith("… 11 12 ")
    assert long.endswith(" 28 29 …")
    assert "[20]" in long


def test_vectors_are_those_of_the_embedder_at_the_place(place: Path) -> None:
    model = embedder(place)
    found = [Occurrence(("the", "bank"), 1), Occurrence(("bank", "and", "cash"), 0)]
    vectors = occurrence_vectors(model, found)
    for i, occurrence in enumerate(found):
        (expected,) = model.embed([occurrence.words])
        np.testing.assert_allclose(vectors[:, i], expected[:, occurrence.place], atol=1e-6)


def test_cosines_are_those_of_the_formula() -> None:
    first = np.array([[3.0, 4.0], [0.0, 0.0]], dtype=np.float32)
    second = np.array([[4.0, 3.0], [-3.0, -4.0]], dtype=np.float32)
    np.testing.assert_allclose(cosines(first, second), np.array([[0.96, -1.0], [0, 0]]), atol=1e-6)


def test_the_share_of_the_same_label_is_counted() -> None:
    labels = ["x"] * 12 + ["y"] * 12
    found = [Occurrence((str(i),), 0, label) for i, label in enumerate(labels)]
    rng = np.random.default_rng(0)
    alike = np.ones((24, 2))
    apart = np.array([[1.0, 0.0]] * 12 + [[0.0, 1.0]] * 12) + 0.01 * rng.random((24, 2))
    shares = label_purities(found, np.stack([alike, apart]).astype(np.float32))
    assert shares is not None
    assert shares[1] == 1.0
    assert shares[0] == pytest.approx(11 / 23, abs=0.12)  # by chance
    assert label_purities([Occurrence(("a",), 0)] * 3, np.ones((1, 3, 2), np.float32)) is None


def test_plain_text_with_a_query(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = ["--text", str(place / "text.txt"), "--query", "the bank near mud"]
    main(flags(place, "plain", *text))
    tree = json.loads((place / "plain" / "results.json").read_text("utf-8"))
    assert (tree["occurrences"], tree["same_label_share"]) == (2, None)
    assert len(tree["layers"]) == 3
    (query,) = tree["layers"][2]
    assert query["query"] == "the [bank] near mud"
    assert query["nearest"][0]["sentence"] == "the [bank] near water"
    assert query["nearest"][0]["cosine"] > query["nearest"][1]["cosine"]
    assert "**the [bank] near mud**" in capsys.readouterr().out
    assert (place / "plain" / "neighbours.png").read_bytes().startswith(b"\x89PNG")


def test_labelled_text_is_measured_and_a_query_is_not_its_own_neighbour(place: Path) -> None:
    main(flags(place, "labelled", "--text", str(place / "train.csv"), "--label-column", "label"))
    tree = json.loads((place / "labelled" / "results.json").read_text("utf-8"))
    assert len(tree["same_label_share"]) == 3
    assert all(0 < share < 1 for share in tree["same_label_share"])
    for layer in tree["layers"]:
        assert len(layer) == 3
        for query in layer:
            assert len(query["nearest"]) == 5
            assert query["query"] not in [near["sentence"] for near in query["nearest"]]
            assert query["label"] in ("river", "money", "sport")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--word", "two words"], "one word is expected"),
        (["--neighbours", "0"], "--neighbours is 0"),
        (["--word", "zebra"], "has 0 sentence"),
        (["--query", "no such"], "lacks the word 'bank'"),
        (["--text", "nowhere.txt"], "cannot read nowhere.txt: No such file"),
    ],
)
def test_mistakes_are_told(place: Path, more: list[str], message: str) -> None:
    with pytest.raises(BilmError, match=message):
        main(flags(place, "mistake", "--text", str(place / "text.txt"), *more))
