from __future__ import annotations

import json
from pathlib import Path

import pytest

from bilm.errors import BilmError
from downstream.analyses.neighbours import main
from tests.downstream.topic_task import make_place

LINES = ["the bank near water", "a Bank and cash", "no such word"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = make_place(tmp_path_factory.mktemp("neighbours"))
    (directory / "text.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return directory


def flags(place: Path, output: str, *more: str) -> list[str]:
    return [
        "--model",
        str(place / "model"),
        "--word",
        "bank",
        "--output",
        str(place / output),
        *more,
    ]


def test_lists_neighbours_of_a_query_in_plain_text(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_labelled_text_measures_the_share_of_the_same_label(place: Path) -> None:
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
        (["--word", "two words"], "it must be a single word"),
        (["--neighbours", "0"], "--neighbours is 0"),
        (["--word", "zebra"], "has 0 sentence"),
        (["--query", "no such"], "does not contain the word 'bank'"),
        (["--text", "nowhere.txt"], "cannot read nowhere.txt: No such file"),
    ],
)
def test_rejects_mistakes(place: Path, more: list[str], message: str) -> None:
    with pytest.raises(BilmError, match=message):
        main(flags(place, "mistake", "--text", str(place / "text.txt"), *more))
