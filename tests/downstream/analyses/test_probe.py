from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bilm.errors import BilmError
from downstream.analyses.probe import main
from tests.downstream.topic_task import golden_bilm


def write_conllu(path: Path, count: int, seed: int) -> Path:
    """Write sentences in which `run` is a noun after `the` and a verb after `they`."""
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
        "--model",
        str(place / "model"),
        "--train",
        str(place / "train.conllu"),
        "--test",
        str(place / "test.conllu"),
        "--output",
        str(place / output),
        *more,
    ]


def test_lstm_layers_use_context_and_layer_0_does_not(
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


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--max-words", "0"], "--max-words is 0"),
        (["--seed", "-1"], "--seed is -1"),
        (["--strength", "-1"], "--strength is -1"),
        (["--strength", "nan"], "--strength is nan"),
        (["--tags", "xpos"], "has only one value of xpos, '_'"),
        (["--train", "nowhere.conllu"], "cannot read nowhere.conllu: No such file"),
    ],
)
def test_rejects_mistakes(place: Path, more: list[str], message: str) -> None:
    with pytest.raises(BilmError, match=message):
        main(flags(place, "mistake", *more))
