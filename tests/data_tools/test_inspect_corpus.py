from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bilm.errors import CorpusError
from data_tools import build_corpus, inspect_corpus
from data_tools.inspect_corpus import quantiles
from tests.data_tools.corpus_reading import run


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    # One sentence of each length from 1 to 100: the word w1 repeated, and a unique word.
    lines = [" ".join(["w1"] * (n - 1) + [f"own{n}"]) for n in range(1, 101)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    args = ["--input", str(tmp_path / "a.txt"), "--output", str(tmp_path / "corpus"), "--workers"]
    args += ["1", "--tokenizer", "whitespace", "--heldout", "0", "--min-count", "2"]
    build_corpus.main(args)
    return tmp_path / "corpus"


def test_reports_exact_figures(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    inspect_corpus.main([str(corpus), "--json", "--verify", "--words", "4", "--samples", "3"])
    report = json.loads(capsys.readouterr().out)
    train = report["splits"]["train"]
    assert train["words"] == 5050
    assert train["unknown_words"] == 100
    assert train["unknown_rate"] == pytest.approx(100 / 5050)
    expected = {"min": 1, "1%": 1, "25%": 25, "50%": 50, "75%": 75, "99%": 99, "max": 100}
    assert train["sentence_words"] == expected
    assert report["word_bytes"]["50%"] == 2
    assert report["word_bytes"]["max"] == len("own100")
    assert report["num_types"] == 3 + 1 + 100
    assert report["vocabulary_size"] == 4
    assert report["head"] == [["<S>", 0], ["</S>", 0], ["<UNK>", 0], ["w1", 4950]]
    assert report["verified"] is True
    for text in train["sample"]:
        words = text.split()
        assert words[-1] == f"own{len(words)}"
    assert len(set(train["sample"])) == 3


def test_tail_does_not_repeat_the_head(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    inspect_corpus.main([str(corpus), "--json", "--words", "3"])
    report = json.loads(capsys.readouterr().out)
    assert report["tail"] == [["w1", 4950]]


def test_prints_text(corpus: Path) -> None:
    result = run("inspect_corpus", corpus, "--verify")
    assert result.returncode == 0, result.stderr
    assert "verified" in result.stderr
    for part in ("train: 5,050 words", "1.98% <UNK>", "50% 50", "w1 4,950", "own"):
        assert part in result.stdout


def test_verify_finds_a_flipped_bit(corpus: Path) -> None:
    shard = corpus / "train-00000.tar"
    data = bytearray(shard.read_bytes())
    data[1000] ^= 1
    shard.write_bytes(data)
    inspect_corpus.main([str(corpus), "--json", "--samples", "0"])
    with pytest.raises(CorpusError, match=r"train-00000\.tar is damaged"):
        inspect_corpus.main([str(corpus), "--verify"])


def test_rejects_a_directory_without_corpus(tmp_path: Path) -> None:
    result = run("inspect_corpus", tmp_path)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


def test_quantiles_equal_those_of_the_repeated_values() -> None:
    random = np.random.default_rng(0)
    values, weights = random.permutation(50), random.integers(0, 9, 50)
    repeated = np.sort(np.repeat(values, weights))
    result = quantiles(values, weights)
    for name, share in inspect_corpus.QUANTILES.items():
        place = max(0, int(np.ceil(share * len(repeated))) - 1)
        assert result[name] == repeated[place]
    assert quantiles(np.array([], int), np.array([], int)) == {}
