from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from experiments.comparison.skipgram import main
from experiments.comparison.table_features import SubwordFeatures, TableFeatures, save_table


def test_table_falls_back_to_lower_case_and_mean(tmp_path: Path) -> None:
    table = np.array([[1, 0], [0, 1]], dtype=np.float32)
    save_table(tmp_path, ["bank", "river"], {"vectors.npy": table})
    (vectors,) = TableFeatures.open(tmp_path).words([["bank", "River", "sea"]])
    assert vectors.tolist() == [[[1, 0], [0, 1], [0.5, 0.5]]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["word2vec", "fasttext"])
def test_skipgram_reads_the_text(tmp_path: Path, kind: str) -> None:
    text = tmp_path / "text"
    text.mkdir()
    sentence = "the bank lends money to the river ."
    (text / "train.txt").write_text(f"{sentence}\n" * 2000)
    (text / "text.json").write_text('{"splits": {"train": {"words": 16000}}}')
    output = tmp_path / "vectors"
    flags = ["--text", str(text), "--output", str(output), "--dim", "8", "--buckets", "100"]
    main(["--kind", kind, "--minutes", "0.01", *flags])
    if kind == "word2vec":
        assert TableFeatures.open(output).words([["bank"]])[0].shape == (1, 1, 8)
        return
    features = SubwordFeatures.open(output, {"min_gram": 3, "max_gram": 6})
    (vectors,) = features.words([["bank", "banks", "."]])
    assert vectors.shape == (1, 3, 8)
    assert np.isfinite(vectors).all()
